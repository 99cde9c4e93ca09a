/*-------------------------------------------------------------------------
 * seam.h
 *	  Replace the server's table of receiver functions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SEAM_H
#define PAPPLY_SEAM_H

/* Put the extension's table in place; called once, in the postmaster. */
extern void papply_seam_install(void);

#endif							/* PAPPLY_SEAM_H */
