/*-------------------------------------------------------------------------
 * saved.h
 *	  Statistics survive a restart of the server.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SAVED_H
#define PAPPLY_SAVED_H

/*
 * For _PG_init, when the shared memory of the statistics is initialized: load
 * what was saved, and save the statistics at exit.  The file is removed, so
 * that nothing outdated is found after a crash.  Errors are logged.
 */
extern void papply_saved_init(void);

#endif							/* PAPPLY_SAVED_H */
