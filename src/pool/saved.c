/*-------------------------------------------------------------------------
 * saved.c
 *	  Records that survive a restart of the server.
 *
 * Runs in the postmaster.
 *
 * There is one file for each name, in the directory of the server's own
 * statistics.  It is written when the postmaster ends, except in a crash, and
 * removed when it is read.  Since PostgreSQL 18 the server can keep statistics
 * of an extension in its own file.  This is not used, because a server that is
 * started without the library would find unknown entries in that file and
 * discard all of its statistics.
 *
 * A file is ignored unless it was written by the same major version of the
 * server, with records of the same size.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "pgstat.h"
#include "storage/fd.h"

#include "saved.h"

/* Must be changed with the meaning of any record. */
#define SAVED_MAGIC 0x50410001

typedef struct Head
{
	uint32		magic;
	uint32		server_version;
	uint64		size;
	int32		count;
} Head;

static char *
path_of(const char *name)
{
	return psprintf("%s/%s.stat", PGSTAT_STAT_PERMANENT_DIRECTORY, name);
}

static bool
write_all(FILE *file, const Head *head, const void *records)
{
	return fwrite(head, sizeof(Head), 1, file) == 1 &&
		fwrite(records, head->size, head->count, file) == head->count;
}

void
papply_saved_write(const char *name, const void *records, Size size, int n)
{
	char	   *path = path_of(name);
	char	   *temporary = psprintf("%s.tmp", path);
	FILE	   *file = AllocateFile(temporary, PG_BINARY_W);
	Head		head;
	bool		is_written;

	memset(&head, 0, sizeof(head));
	head.magic = SAVED_MAGIC;
	head.server_version = PAPPLY_SERVER_MAJOR;
	head.size = size;
	head.count = n;
	is_written = file != NULL && write_all(file, &head, records);
	if (file != NULL && FreeFile(file) != 0)
		is_written = false;
	if (is_written)
		(void) durable_rename(temporary, path, LOG);
	else
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", temporary)));
		(void) unlink(temporary);
	}
	pfree(temporary);
	pfree(path);
}

static void *
read_all(FILE *file, Size size, int *n)
{
	Head		head;
	void	   *records;

	if (fread(&head, sizeof(head), 1, file) != 1 || head.magic != SAVED_MAGIC ||
		head.server_version != PAPPLY_SERVER_MAJOR || head.size != size ||
		head.count < 0 || head.count > MaxAllocSize / size)
		return NULL;
	records = palloc(Max(head.count * size, 1));
	*n = head.count;
	if (fread(records, size, head.count, file) == head.count)
		return records;
	pfree(records);
	return NULL;
}

void *
papply_saved_read(const char *name, Size size, int *n)
{
	char	   *path = path_of(name);
	FILE	   *file = AllocateFile(path, PG_BINARY_R);
	void	   *records = NULL;

	if (file != NULL)
	{
		records = read_all(file, size, n);
		FreeFile(file);
		if (records == NULL)
			ereport(LOG,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("ignoring invalid data in file \"%s\"", path)));
		(void) unlink(path);
	}
	pfree(path);
	return records;
}
