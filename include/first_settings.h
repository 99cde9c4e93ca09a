/*-------------------------------------------------------------------------
 * first_settings.h
 *	  Writers begin with the settings that the apply worker has begun with.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FIRST_SETTINGS_H
#define PAPPLY_FIRST_SETTINGS_H

/* Receiver: call once, before user code can run. */
extern void papply_first_settings_note(void);

/* Receiver: provide them for the writers of a pool, when its registry is empty. */
extern void papply_first_settings_share(void);

/*
 * Writer: replace all settings, outside of a transaction.  The caller must
 * reload the configuration files when ConfigReloadPending is set.
 */
extern void papply_first_settings_take(void);

#endif							/* PAPPLY_FIRST_SETTINGS_H */
