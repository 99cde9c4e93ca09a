/*-------------------------------------------------------------------------
 * session_settings.h
 *	  Settings and temporary tables that user code leaves in its session.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_SETTINGS_H
#define PAPPLY_SESSION_SETTINGS_H

/*
 * Receiver, outside of a transaction: publish whether its session has such settings or
 * tables.
 */
extern void papply_session_settings_note(void);

/* Return whether the receiver's session has such settings or tables. */
extern bool papply_session_settings_exist(void);

/*
 * Writer, before the commit: throw an error if user code has made such a
 * setting in this transaction, or has used a temporary table.
 */
extern void papply_session_settings_check_end(void);

#endif							/* PAPPLY_SESSION_SETTINGS_H */
