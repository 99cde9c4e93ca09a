/*-------------------------------------------------------------------------
 * modules.h
 *	  What the start of the library calls in files that have no other users.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_MODULES_H
#define PAPPLY_MODULES_H

/*** walrcv_hook.c ***/

/* Put the extension's table in place; called once, in the postmaster. */
extern void papply_walrcv_hook_install(void);

/*** failed.c ***/

/* For all of src/failed/: observe the core apply loop, and statements. */
extern void papply_failed_init(void);

/*** last_consumer.c ***/

/* Have walsenders report, and request and initialize the shared memory. */
extern void papply_last_consumer_init(void);
extern void papply_last_consumer_request_shmem(void);
extern void papply_last_consumer_init_shmem(void);

/*** saved.c ***/

/*
 * When the shared memory of the statistics is initialized: load
 * what was saved, and save the statistics at exit.  The file is removed, so
 * that nothing outdated is found after a crash.  Errors are logged.
 */
extern void papply_saved_init(void);

/*** drop_extension.c ***/

/* Have DROP EXTENSION remove what the extension leaves. */
extern void papply_drop_extension_init(void);

/*** coalesce.c and read_on.c ***/

/* Postmaster, once, before all else. */
extern void papply_coalesce_init(void);
extern void papply_read_on_init(void);

/*
 * Apply the value of the setting coalesce_messages in this process and those that it forks:
 * replace the server's functions with ours, or restore them, unless another library has
 * replaced them since.  A walsender that has begun keeps ours.
 */
extern void papply_coalesce_switch(bool is_on);
extern void papply_read_on_switch(bool is_on);

#endif							/* PAPPLY_MODULES_H */
