/*-------------------------------------------------------------------------
 * decoding.h
 *	  Find out whether the WAL of this server is decoded.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DECODING_H
#define PAPPLY_DECODING_H

/*
 * Can the changes made from here on be decoded, so that they must be logged as
 * PostgreSQL's own apply would do it?  A logical slot created after the answer
 * "no" does not decode a transaction that already had an xid.
 */
extern bool papply_decoding_is_possible(void);

/* Is it certain, for the lifetime of the server, that they cannot? */
extern bool papply_decoding_is_impossible(void);

/*
 * Can a slot of any database wait for the end of a transaction that has an
 * xid?
 */
extern bool papply_decoding_waits_for_xids(void);

/*
 * Return why each remote transaction of this database is applied by itself: the
 * clause after "because", or NULL if several may be applied together.
 */
extern char *papply_decoding_strict_reason(void);

#endif							/* PAPPLY_DECODING_H */
