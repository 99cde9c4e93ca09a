/*-------------------------------------------------------------------------
 * spool_file.c
 *	  The file that keeps the messages of a streamed transaction.
 *
 * The file is a temporary file of PostgreSQL that several processes can open
 * (a file set), like those that the core apply loop spools to.  The server
 * closes such a file at the end of the local transaction at the latest, and
 * the receiver uses many of them while it spools.  So a file is opened to
 * append or to read many messages at a time, and is closed after that.  After
 * a crash the server deletes it with other temporary files.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <fcntl.h>

#include "storage/buffile.h"
#include "utils/resowner.h"

#include "spool_file.h"

/* See papply_spool_file_step(). */
#define MIN_STEP (256 * 1024)
#define MAX_STEP (4 * 1024 * 1024)
#define STEPS 4096

static ResourceOwner our_owner = NULL;	/* outside of a transaction */

/*
 * Ensure that there is a resource owner, which files need.  There is none
 * outside of a transaction.  Returns the previous one.
 */
static ResourceOwner
begin_using_files(void)
{
	ResourceOwner old_owner = CurrentResourceOwner;

	if (old_owner != NULL)
		return old_owner;
	if (our_owner == NULL)
		our_owner = ResourceOwnerCreate(NULL, "parallel_apply spool");
	CurrentResourceOwner = our_owner;
	return NULL;
}

int
papply_spool_file_step(uint64 bytes)
{
	return Max(MIN_STEP, Min(MAX_STEP, bytes / STEPS));
}

/* Return the name of a file within its set, valid until the next call. */
static const char *
name_of(const PapplySpoolFile *file)
{
	static char name[16];

	snprintf(name, sizeof(name), "%u", file->number);
	return name;
}

/* Seek like fseek(); the server finds the segment. */
static void
seek_to(BufFile *buffile, uint64 position, int whence)
{
	if (BufFileSeek(buffile, 0, position, whence) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
}

void
papply_spool_file_append(PapplySpoolFile *file, bool is_new, char *data, int length)
{
	ResourceOwner old_owner = begin_using_files();
	BufFile    *buffile;

	Assert(length > 0);
	if (is_new)
		buffile = BufFileCreateFileSet(&file->set, name_of(file));
	else
	{
		buffile = BufFileOpenFileSet(&file->set, name_of(file), O_RDWR, false);
		seek_to(buffile, 0, SEEK_END);
	}
	BufFileWrite(buffile, data, length);
	BufFileClose(buffile);
	CurrentResourceOwner = old_owner;
}

void
papply_spool_file_truncate(PapplySpoolFile *file, uint64 position)
{
	ResourceOwner old_owner = begin_using_files();
	BufFile    *buffile;
	int			segment;
	off_t		offset;

	buffile = BufFileOpenFileSet(&file->set, name_of(file), O_RDWR, false);
	seek_to(buffile, position, SEEK_SET);
	BufFileTell(buffile, &segment, &offset);
	BufFileTruncateFileSet(buffile, segment, offset);
	BufFileClose(buffile);
	CurrentResourceOwner = old_owner;
}

void
papply_spool_file_delete(PapplySpoolFile *file)
{
	BufFileDeleteFileSet(&file->set, name_of(file), true);
}

void
papply_spool_reader_init(PapplySpoolReader *reader, const PapplySpoolFile *file)
{
	memset(reader, 0, sizeof(*reader));
	reader->file = *file;
	initStringInfo(&reader->bytes);
}

void
papply_spool_reader_free(PapplySpoolReader *reader)
{
	pfree(reader->bytes.data);
	reader->bytes.data = NULL;
}

uint64
papply_spool_reader_position(const PapplySpoolReader *reader)
{
	return reader->position - (reader->bytes.len - reader->bytes.cursor);
}

void
papply_spool_reader_skip(PapplySpoolReader *reader, uint64 position)
{
	Assert(position >= papply_spool_reader_position(reader));
	if (position < reader->position)
		reader->bytes.cursor = reader->bytes.len - (reader->position - position);
	else
	{
		resetStringInfo(&reader->bytes);
		reader->position = position;
	}
}

/* Read up to position end, until wanted bytes have not been returned yet. */
static void
read_more(PapplySpoolReader *reader, uint64 end, uint64 wanted)
{
	ResourceOwner old_owner = begin_using_files();
	StringInfo	bytes = &reader->bytes;
	BufFile    *buffile;
	size_t		length;

	Assert(end > reader->position && wanted > bytes->len - bytes->cursor);
	bytes->len -= bytes->cursor;
	memmove(bytes->data, bytes->data + bytes->cursor, bytes->len);
	bytes->cursor = 0;
	length = Min(end - reader->position, wanted - bytes->len);
	enlargeStringInfo(bytes, length);

	buffile = BufFileOpenFileSet(&reader->file.set, name_of(&reader->file), O_RDONLY, false);
	seek_to(buffile, reader->position, SEEK_SET);
	if (BufFileRead(buffile, bytes->data + bytes->len, length) != length)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file: %m")));
	BufFileClose(buffile);
	bytes->len += length;
	reader->position += length;
	CurrentResourceOwner = old_owner;
}

/* Are this many bytes available, if necessary after reading more? */
static bool
has_bytes(PapplySpoolReader *reader, uint64 end, uint64 wanted)
{
	StringInfo	bytes = &reader->bytes;

	if (bytes->len - bytes->cursor < wanted && reader->position < end)
		read_more(reader, end, Max(wanted, papply_spool_file_step(reader->position)));
	return bytes->len - bytes->cursor >= wanted;
}

bool
papply_spool_reader_next(PapplySpoolReader *reader, uint64 end,
						 PapplySpooled *head, char **message)
{
	StringInfo	bytes = &reader->bytes;

	if (!has_bytes(reader, end, sizeof(*head)))
		return false;
	memcpy(head, bytes->data + bytes->cursor, sizeof(*head));
	if (head->length > MaxAllocSize || !has_bytes(reader, end, sizeof(*head) + head->length))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("unexpected end of temporary file")));
	*message = bytes->data + bytes->cursor + sizeof(*head);
	bytes->cursor += sizeof(*head) + head->length;
	return true;
}
