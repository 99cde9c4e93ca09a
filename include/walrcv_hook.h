/*-------------------------------------------------------------------------
 * walrcv_hook.h
 *	  Replace the server's table of receiver functions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WALRCV_HOOK_H
#define PAPPLY_WALRCV_HOOK_H

/* Put the extension's table in place; called once, in the postmaster. */
extern void papply_walrcv_hook_install(void);

#endif							/* PAPPLY_WALRCV_HOOK_H */
