/*-------------------------------------------------------------------------
 * guc.h
 *	  The settings parallel_apply.*, as variables of this process.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GUC_H
#define PAPPLY_GUC_H

/* Values of papply_streaming_apply. */
typedef enum PapplyStreamingApply
{
	PAPPLY_STREAMING_WRITER,	/* by a writer, while it arrives */
	PAPPLY_STREAMING_FILE		/* from its file, after its end */
} PapplyStreamingApply;

/* Values of papply_logical_decoding. */
typedef enum PapplyDecoding
{
	PAPPLY_DECODING_AUTO,		/* if a consumer may get what is applied */
	PAPPLY_DECODING_ON,			/* if the WAL can be decoded */
	PAPPLY_DECODING_SLOTS,		/* if this server has a slot */
	PAPPLY_DECODING_OFF
} PapplyDecoding;

extern bool papply_leader_participation;
extern bool papply_coalesce_messages;
extern bool papply_log_conflicts;
extern int	papply_log_min_duration;	/* in ms; -1: off */
extern int	papply_logical_decoding;	/* a PapplyDecoding */
extern int	papply_max_batch_transactions;
extern int	papply_max_stored_transaction_size; /* kB */
extern int	papply_max_writers_per_subscription;
extern int	papply_idle_writers_per_subscription;	/* -1: all */
extern int	papply_queue_size;	/* in kB */
extern int	papply_reserved_worker_processes;
extern int	papply_streaming_apply; /* a PapplyStreamingApply */
extern int	papply_writer_idle_timeout; /* in ms */
extern int	papply_writers_per_subscription;

/*
 * Define the settings and reserve their prefix.  Called once by _PG_init.  The
 * function is called for each new value of coalesce_messages, in any process.
 */
extern void papply_guc_init(void (*assign_coalesce_messages) (bool is_on, void *extra));

/*
 * Return the number of writers of a subscription for which this number, or 0
 * for none, is configured: 1..64.
 */
extern int	papply_guc_writers(int configured);

#endif							/* PAPPLY_GUC_H */
