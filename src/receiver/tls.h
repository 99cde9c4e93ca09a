/*-------------------------------------------------------------------------
 * tls.h
 *	  Read several messages of an encrypted connection at once.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TLS_H
#define PAPPLY_TLS_H

#include "replication/walreceiver.h"

/*
 * A pool starts, and has stopped.  From then on, papply_tls_has_more() must be
 * called whenever there is nothing to read from the connection, until
 * papply_tls_is_native() returns true.
 */
extern void papply_tls_begin(WalReceiverConn *conn);
extern void papply_tls_end(void);

/*
 * Is there something to read nevertheless?  The socket does not become readable
 * for that.
 */
extern bool papply_tls_has_more(void);

/*
 * In the self test: abort if there is and papply_tls_has_more() has not found
 * it.  Returns true for what has arrived since.
 */
#ifdef PAPPLY_SELFTEST
extern bool papply_tls_check(void);
#else
#define papply_tls_check() false
#endif

/* Can everything that there is to read be found by waiting for the socket? */
extern bool papply_tls_is_native(void);

#endif							/* PAPPLY_TLS_H */
