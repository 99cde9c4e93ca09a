/*-------------------------------------------------------------------------
 * read_on.h
 *	  Decode several WAL records before checking for replies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_READ_ON_H
#define PAPPLY_READ_ON_H

/* Postmaster, once, before all else. */
extern void papply_read_on_init(void);

/* As papply_coalesce_switch() (coalesce.h). */
extern void papply_read_on_switch(bool is_on);

#endif							/* PAPPLY_READ_ON_H */
