/*-------------------------------------------------------------------------
 * saved.c
 *	  Statistics survive a restart of the server.
 *
 * Runs in the postmaster.
 *
 * The statistics of subscriptions and those of tables are in one file, in the
 * directory of the server's own statistics.  The file is written when the
 * postmaster exits.  It is left alone when it is read, because the postmaster
 * may still fail to start, for example because of an invalid pg_hba.conf, and
 * exits without writing it then.  Since PostgreSQL 18 the
 * server can keep statistics of an extension in its own file.  This is not
 * used, because a server that is started without the library would find
 * unknown entries in that file and discard all of its statistics.
 *
 * As with the server's own statistics, nothing is read if the server has to
 * recover: transactions may be lost that were counted, and are counted again
 * when the publisher sends them again.  So a file that was read at the start
 * of a server that has crashed, that an immediate shutdown has written, or that
 * is part of a backup, is removed.
 *
 * A file is ignored unless it was written by the same version of this file's
 * format and the same major version of the server, and its checksum is right.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "storage/ipc.h"

#include "modules.h"
#include "statistics.h"
#include "table_statistics.h"

#define SAVED_FILE PGSTAT_STAT_PERMANENT_DIRECTORY "/" PAPPLY_NAME ".stat"

/* Must be changed with the meaning of any record. */
#define SAVED_VERSION 0x50410004

typedef struct Head
{
	/* known before the file is read */
	uint32		version;
	uint32		server_version;
	uint32		subscription_size;
	uint32		table_size;

	uint32		subscriptions;	/* numbers of records */
	uint32		tables;
	pg_crc32c	checksum;		/* of everything else */
} Head;

typedef struct Content
{
	Head		head;
	PapplySavedSubscription *subscriptions;
	PapplyTableStatistics *tables;
} Content;

static void
begin_head(Head *head)
{
	memset(head, 0, sizeof(*head));
	head->version = SAVED_VERSION;
	head->server_version = PG_MAJORVERSION_NUM;
	head->subscription_size = sizeof(PapplySavedSubscription);
	head->table_size = sizeof(PapplyTableStatistics);
}

static pg_crc32c
checksum_of(const Content *content)
{
	pg_crc32c	checksum;

	INIT_CRC32C(checksum);
	COMP_CRC32C(checksum, &content->head, offsetof(Head, checksum));
	COMP_CRC32C(checksum, content->subscriptions,
				content->head.subscriptions * sizeof(PapplySavedSubscription));
	COMP_CRC32C(checksum, content->tables, content->head.tables * sizeof(PapplyTableStatistics));
	FIN_CRC32C(checksum);
	return checksum;
}

/*** at exit ***/

static bool
write_all(FILE *file, const Content *content)
{
	const Head *head = &content->head;

	return fwrite(head, sizeof(Head), 1, file) == 1 &&
		fwrite(content->subscriptions, sizeof(PapplySavedSubscription),
			   head->subscriptions, file) == head->subscriptions &&
		fwrite(content->tables, sizeof(PapplyTableStatistics), head->tables, file) == head->tables;
}

static void
write_file(const Content *content)
{
	const char *temporary = SAVED_FILE ".tmp";
	FILE	   *file = AllocateFile(temporary, PG_BINARY_W);
	bool		is_written = file != NULL && write_all(file, content);

	if (file != NULL && FreeFile(file) != 0)
		is_written = false;
	if (is_written)
	{
		(void) durable_rename(temporary, SAVED_FILE, LOG);
		return;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", temporary)));
	(void) unlink(temporary);
	(void) unlink(SAVED_FILE);	/* it is that of the last start */
}

static void
save_at_exit(int code, Datum arg)
{
	Content		content;

	if (code != 0)
		return;
	begin_head(&content.head);
	content.subscriptions = papply_statistics_save(&content.head.subscriptions);
	content.tables = papply_table_statistics_save(&content.head.tables);
	content.head.checksum = checksum_of(&content);
	write_file(&content);
}

/*** at start ***/

/* Read what follows the head.  Return false if it is damaged. */
static bool
read_content(FILE *file, Content *content)
{
	const Head *head = &content->head;
	uint64		length = (uint64) head->subscriptions * sizeof(PapplySavedSubscription) +
	(uint64) head->tables * sizeof(PapplyTableStatistics);

	if (length >= MaxAllocSize)
		return false;
	content->subscriptions = palloc(length + 1);
	content->tables = (PapplyTableStatistics *) (content->subscriptions + head->subscriptions);
	return fread(content->subscriptions, 1, length, file) == length &&
		EQ_CRC32C(head->checksum, checksum_of(content));
}

/* Returns false if the file cannot be used. */
static bool
load_from(FILE *file)
{
	Content		content;
	Head		expected;
	bool		is_loaded = false;

	memset(&content, 0, sizeof(content));
	begin_head(&expected);
	if (fread(&content.head, sizeof(Head), 1, file) == 1 &&
		memcmp(&content.head, &expected, offsetof(Head, subscriptions)) != 0)
		ereport(LOG,
				(errmsg("ignoring file \"%s\" of another version", SAVED_FILE)));
	else if (!read_content(file, &content))
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring invalid data in file \"%s\"", SAVED_FILE)));
	else
	{
		papply_statistics_load(content.subscriptions, content.head.subscriptions);
		papply_table_statistics_load(content.tables, content.head.tables);
		is_loaded = true;
	}
	if (content.subscriptions != NULL)
		pfree(content.subscriptions);
	return is_loaded;
}

/* Is no recovery needed, because the server was shut down? */
static bool
was_shut_down(void)
{
	bool		is_valid;
	ControlFileData *control = get_controlfile(DataDir, &is_valid);
	bool		was = is_valid && (control->state == DB_SHUTDOWNED ||
								   control->state == DB_SHUTDOWNED_IN_RECOVERY);

	pfree(control);
	return was;
}

void
papply_saved_init(void)
{
	FILE	   *file;

	if (IsUnderPostmaster)
		return;
	file = AllocateFile(SAVED_FILE, PG_BINARY_R);
	if (file != NULL)
	{
		if (!was_shut_down() || !load_from(file))
			(void) unlink(SAVED_FILE);
		FreeFile(file);
	}
	on_shmem_exit(save_at_exit, (Datum) 0);
}
