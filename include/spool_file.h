/*-------------------------------------------------------------------------
 * room: pool
 *
 * spool_file.h
 *	  The file that keeps the messages of a streamed transaction.
 *
 * The receiver appends; it and a writer read, each from the beginning, as far
 * as has been appended.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_FILE_H
#define PAPPLY_SPOOL_FILE_H

#include "lib/stringinfo.h"
#include "storage/fileset.h"

#include "parallel_apply.h"

/* Which file. */
typedef struct PapplySpoolFile
{
	FileSet		set;
	uint32		number;
} PapplySpoolFile;

/*
 * Head of a message in the file; length bytes follow, of the message without the
 * xid that streamed messages have behind the kind.  None follow the head of a
 * chunk.
 */
typedef struct PapplySpooled
{
	TransactionId subxid;
	uint32		length;
	uint32		relation_version;	/* of a RELATION, for who applies it
									 * early; or 0 */
	uint64		dependency;		/* of a chunk: number of the transaction that
								 * was received before it */
} PapplySpooled;

/* How far a file has been read. */
typedef struct PapplySpoolReader
{
	PapplySpoolFile file;
	uint64		position;		/* of the next byte to read from it */
	StringInfoData bytes;		/* read, from cursor on not returned yet */
} PapplySpoolReader;

/*
 * So many bytes had better be appended, or read, at a time, where that many are before them:
 * each time, all files that a large one consists of are opened.
 */
extern int	papply_spool_file_step(uint64 bytes);

/* Receiver: append whole messages to a file, the first time to a new one. */
extern void papply_spool_file_append(PapplySpoolFile *file, bool is_new,
									 char *data, int length);

/* Receiver: give back all that is behind that position; nobody reads it. */
extern void papply_spool_file_truncate(PapplySpoolFile *file, uint64 position);

/* Receiver: delete one. */
extern void papply_spool_file_delete(PapplySpoolFile *file);

/* Read from the beginning; memory of the current context, until it is freed. */
extern void papply_spool_reader_init(PapplySpoolReader *reader, const PapplySpoolFile *file);
extern void papply_spool_reader_free(PapplySpoolReader *reader);

/* Position of the next message; and the same, to leave out what is before. */
extern uint64 papply_spool_reader_position(const PapplySpoolReader *reader);
extern void papply_spool_reader_skip(PapplySpoolReader *reader, uint64 position);

/*
 * The next message before position end, which is one where messages end; false: there is
 * none.  The message is valid until the next call.  Throws what reading a file throws.
 */
extern bool papply_spool_reader_next(PapplySpoolReader *reader, uint64 end,
									 PapplySpooled *head, char **message);

#endif							/* PAPPLY_SPOOL_FILE_H */
