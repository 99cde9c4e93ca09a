/*-------------------------------------------------------------------------
 * activity.c
 *	  What pg_stat_activity shows of a writer.
 *
 * Runs in a writer.
 *
 * The view shows, instead of a query, the table that the writer works on and
 * the commit position of the remote transaction.  For a batch, that is the
 * transaction that was the first to change this table.  The text is set at the
 * first change of a table in each local transaction, so it is formatted
 * without printf functions, which are slow.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "pgstat.h"
#include "postmaster/bgworker.h"

#include "activity.h"
#include "pool.h"

/* NULL: idle; empty: must be set again. */
static const char *shown_table = "";

static char *
put_hex(char *to, uint32 value, int min_digits)
{
	int			digits = min_digits;

	while (digits < 8 && (value >> (4 * digits)) != 0)
		digits++;
	while (--digits >= 0)
		*to++ = "0123456789ABCDEF"[(value >> (4 * digits)) & 0xF];
	return to;
}

void
papply_activity_show_name(void)
{
	pgstat_report_appname(MyBgworkerEntry->bgw_name);
}

void
papply_activity_show(const char *table)
{
	char		shown[2 * NAMEDATALEN + 32];
	XLogRecPtr	lsn;
	size_t		length;
	char	   *end;

	if (table == shown_table)
		return;
	shown_table = table;
	if (table == NULL)
	{
		papply_activity_show_name();
		pgstat_report_activity(STATE_IDLE, NULL);
		return;
	}
	lsn = papply_pool->writers[papply_pool_waiter].remote_final_lsn;
	length = strnlen(table, 2 * NAMEDATALEN - 1);
	memcpy(shown, table, length);
	end = shown + length;
	*end++ = ' ';
	end = put_hex(end, lsn >> 32, 1);
	*end++ = '/';
	end = put_hex(end, (uint32) lsn, PAPPLY_LSN_MIN_DIGITS);
	*end = '\0';
	pgstat_report_activity(STATE_RUNNING, shown);
}

void
papply_activity_forget(void)
{
	if (shown_table != NULL)
		shown_table = "";
}
