/*-------------------------------------------------------------------------
 * room: receiver
 *
 * seam.h
 *	  Our table of receiver functions in place of the server's.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SEAM_H
#define PAPPLY_SEAM_H

#include "replication/walreceiver.h"

/* The server's own functions. */
extern const WalReceiverFunctionsType *papply_seam_server;

/* Put our table in place; in the postmaster, once. */
extern void papply_seam_install(void);

#endif							/* PAPPLY_SEAM_H */
