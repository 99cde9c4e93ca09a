/*-------------------------------------------------------------------------
 * room: any
 *
 * drop_extension.h
 *	  DROP EXTENSION does not remove stored transactions unnoticed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DROP_EXTENSION_H
#define PAPPLY_DROP_EXTENSION_H

/* Hook for _PG_init. */
extern void papply_drop_extension_init(void);

#endif							/* PAPPLY_DROP_EXTENSION_H */
