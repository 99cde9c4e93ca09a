/*-------------------------------------------------------------------------
 * ask.c
 *	  Ask the subscriber for a flush that a backend waits for.
 *
 * Runs in walsenders for which the setting coalesce_messages is on.
 *
 * A commit with synchronous_commit = on waits until the standby has flushed
 * it.  The protocol does not transmit this.  A subscriber that does not know
 * it has to flush each commit at once, which costs a write to its device and
 * several context switches, usually without a session that waits.  The
 * walsender can see whether a backend waits.  If so, it requests a reply from
 * the subscriber with a keepalive, as it may at any time.  A subscriber that
 * supports this (publisher.c) flushes then, and not before.  Any other
 * subscriber just replies.
 *
 * A backend may wait after a transaction that has nothing for the subscriber.
 * It then waits for the transactions before it, which have been flushed, or
 * for which no request has been sent yet.  The server itself flushes the
 * second phase of a prepared transaction.
 *
 * A backend begins to wait some microseconds after its commit has woken the
 * walsender, which takes longer to decode the commit.  If the walsender is
 * faster nevertheless, it checks again when the subscriber reports that it has
 * received or applied the commit.
 *
 * Locking: none.  A single access reads whether the list of waiting backends
 * is empty, and the check is repeated before each wait.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "port/pg_bswap.h"
#include "replication/walsender_private.h"
#include "utils/timestamp.h"

#include "ask.h"

static bool has_ended = false;	/* a transaction, since the last request */

void
papply_ask_put(void)
{
	has_ended = true;
}

void
papply_ask_forget(void)
{
	has_ended = false;
}

bool
papply_ask_is_due(void)
{
	return has_ended && MyWalSnd->sync_standby_priority > 0 && papply_compat_flush_is_awaited();
}

void
papply_ask_make(char message[PAPPLY_ASK_LENGTH])
{
	uint64		sent_lsn = pg_hton64(MyWalSnd->sentPtr);
	uint64		now = pg_hton64((uint64) GetCurrentTimestamp());

	has_ended = false;
	message[0] = 'k';
	memcpy(message + 1, &sent_lsn, sizeof(sent_lsn));
	memcpy(message + 1 + sizeof(sent_lsn), &now, sizeof(now));
	message[PAPPLY_ASK_LENGTH - 1] = true;	/* a reply is requested */
}
