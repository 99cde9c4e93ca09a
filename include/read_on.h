/*-------------------------------------------------------------------------
 * room: sender
 *
 * read_on.h
 *	  Records that a walsender decodes before it looks for replies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_READ_ON_H
#define PAPPLY_READ_ON_H

/*
 * Postmaster: from now on walsenders follow the setting coalesce_messages.  After
 * papply_gather_install().
 */
extern void papply_read_on_install(void);

#endif							/* PAPPLY_READ_ON_H */
