/*-------------------------------------------------------------------------
 * ask.c
 *	  A walsender asks for a flush that a backend waits for.
 *
 * Runs in walsenders, on a publisher that preloads the library.
 *
 * A commit with synchronous_commit = on waits until the standby has flushed it.
 * The protocol does not say so, and a subscriber that does not know has to flush
 * each commit at once, which costs it a write to its device and several switches
 * between processes, for nobody as a rule.  The walsender can see it: then it asks
 * the subscriber for a reply, with a keepalive, as it may at any time.  A
 * subscriber that knows of it (publisher.c) flushes then, and not before; another
 * one replies.
 *
 * Who waits after a transaction that has nothing for the subscriber waits for those
 * before it: they are flushed already, or not asked for yet.  The second phase of a
 * prepared transaction is flushed by the server.
 *
 * A backend begins to wait some microseconds after its commit has woken the
 * walsender, which takes longer to decode it.  Should it be faster all the same, it
 * looks again when the subscriber tells that it has received or applied the commit.
 *
 * Locking: none.  That the list of those who wait is empty is read in one access,
 * and is looked at again before each wait.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "port/pg_bswap.h"
#include "replication/walsender_private.h"
#include "utils/timestamp.h"

#include "ask.h"

static bool has_ended = false;	/* a transaction, since the last question */

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
