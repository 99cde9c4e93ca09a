/*-------------------------------------------------------------------------
 * drop_extension.h
 *	  Keep DROP EXTENSION from removing stored transactions silently.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DROP_EXTENSION_H
#define PAPPLY_DROP_EXTENSION_H

/* For _PG_init. */
extern void papply_drop_extension_init(void);

#endif							/* PAPPLY_DROP_EXTENSION_H */
