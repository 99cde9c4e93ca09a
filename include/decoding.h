/*-------------------------------------------------------------------------
 * room: pool
 *
 * decoding.h
 *	  Is the WAL of this server decoded?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DECODING_H
#define PAPPLY_DECODING_H

/*
 * May changes that are made from here on be decoded, so that they have to be logged as
 * PostgreSQL's own apply would?  A logical slot that is created after the answer "no"
 * does not decode a transaction that had an xid before.
 */
extern bool papply_decoding_is_possible(void);

/* Is it certain, as long as the server runs, that they are not? */
extern bool papply_decoding_is_impossible(void);

/* May a slot of any database wait for the end of a transaction that has an xid? */
extern bool papply_decoding_waits_for_xids(void);

#endif							/* PAPPLY_DECODING_H */
