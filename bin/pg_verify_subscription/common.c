/*-------------------------------------------------------------------------
 * common.c
 *	  The state that both servers have in common while tables are compared.
 *
 * Large tables may be compared in several states, each for some minutes, so that VACUUM is
 * not held back for as long as all of them need.  A range is always compared in one.
 * Between two of them no snapshot is held, and anything may happen to the tables: what is
 * known of them is loaded again.  Taking a state may last as long as transactions of the
 * publisher do, so definitions are loaded once more when it is there.  The identity of the
 * files is not: the snapshots do not show what was truncated since they were taken.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common.h"

/*
 * Note what the subscriber's catalogs say in its snapshot.  The locks of these queries are
 * released with a savepoint: REFRESH PUBLICATION, for which apply may wait, must not wait
 * until all tables have been compared.
 */
static void
note_catalogs(Common *common)
{
	PGconn	   *subscriber = common->sessions[SUBSCRIBER];

	execute(subscriber, "SAVEPOINT catalogs");
	note_synchronization(common->tables, subscriber, common->subscription, common->position.lsn);
	note_skipped(common->tables, subscriber, common->subscription);
	execute(subscriber, "ROLLBACK TO catalogs; RELEASE catalogs");
}

void
take_common(Common *common, PGconn **idle)
{
	bool		is_first = common->position.lsn == NULL;

	if (!is_first)
	{
		end_common(common);
		reload_tables(common->tables, common->sessions[PUBLISHER], common->sessions[SUBSCRIBER],
					  common->subscription, false);
	}
	take_position(&common->position, common->targets, common->sessions,
				  common->subscription->name);
	common->began_ms = now_ms();
	fprintf(stderr, "subscription \"%s\": %s at position %s of the publisher; apply was held for %.1f ms\n",
			common->subscription->name, is_first ? "comparing" : "continuing",
			common->position.lsn, common->position.held_ms);
	reload_tables(common->tables, idle[PUBLISHER], idle[SUBSCRIBER], common->subscription, true);
	note_catalogs(common);
}

void
join_common(const Common *common, PGconn *session, Side side)
{
	import_snapshot(session, common->position.snapshots[side]);
}

void
close_common(Common *common)
{
	release_slot(&common->position);
}

void
end_common(Common *common)
{
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		execute(common->sessions[side], "COMMIT");
	common->longest_ms = Max(common->longest_ms, now_ms() - common->began_ms);
}
