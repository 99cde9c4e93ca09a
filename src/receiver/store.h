/*-------------------------------------------------------------------------
 * store.h
 *	  Store transactions that are skipped.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STORE_H
#define PAPPLY_STORE_H

/*
 * Look for transactions that are to be stored.  Must the publisher send whole
 * transactions only, in the stream that is about to start?  Changes that the
 * server spools in its own files could not be stored.
 */
extern bool papply_store_forbids_streaming(void);

#endif							/* PAPPLY_STORE_H */
