/*-------------------------------------------------------------------------
 * owner.c
 *	  The process that applies a transaction, and the processes that wait for
 *	  it.
 *
 * Runs in writers, in receivers, and in backends that read the views.
 *
 * Locking: none.  Everything here is a hint.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "in_progress.h"
#include "owner.h"
#include "pool.h"
#include "queue.h"

/*
 * Search the streamed transactions first: a writer that applied one in
 * progress may not have learned its sequence number yet.
 */
PapplyWriterSlot *
papply_owner_writer(PapplyPool *pool, uint64 seqno)
{
	PapplyWriterSlot *in_progress = papply_in_progress_writer_of(pool, seqno);

	if (in_progress != NULL)
		return in_progress;
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &pool->writers[i];

		if (writer_slot->first_seqno <= seqno && seqno <= writer_slot->last_seqno)
			return writer_slot;
	}
	return NULL;
}

/* Does this writer wait for the commit of older transactions, or for data? */
static bool
waits_in_order(const PapplyWriterSlot *writer_slot)
{
	return writer_slot->state == PAPPLY_WRITER_WAIT_TURN ||
		writer_slot->state == PAPPLY_WRITER_WAIT_DEPENDENCY ||
		writer_slot->state == PAPPLY_WRITER_WAIT_DATA;
}

PapplyPool *
papply_owner_other_pool(int pid)
{
	PapplyPool *pool;
	int			n = 0;

	while ((pool = papply_pool_next_other(&n)) != NULL)
		for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
			if (pool->writers[i].pid == pid && waits_in_order(&pool->writers[i]))
				return pool;
	return NULL;
}

int
papply_owner_awaited_pid(PapplyPool *pool, int writer)
{
	uint64		awaited = pg_atomic_read_u64(&pool->order.waiting_for[writer]);
	PapplyWriterSlot *writer_slot;

	if (pool->writers[writer].state == PAPPLY_WRITER_WAIT_DATA ||
		pool->writers[writer].state == PAPPLY_WRITER_WAIT_LEADER)
		return pool->receiver_pid;
	if (awaited == 0 || !waits_in_order(&pool->writers[writer]))
		return 0;

	/* the receiver has a transaction that no writer has claimed */
	writer_slot = papply_owner_writer(pool, awaited);
	return writer_slot != NULL ? writer_slot->pid : pool->receiver_pid;
}

/*** receiver ***/

bool
papply_owner_reclaim_read(void)
{
	uint64		oldest = papply_queue_released_seqno() + 1;

	return papply_queue_reclaim_read(papply_owner_writer(papply_pool, oldest));
}
