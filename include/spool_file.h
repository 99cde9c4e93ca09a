/*-------------------------------------------------------------------------
 * spool_file.h
 *	  The file that keeps the messages of a streamed transaction.
 *
 * The receiver appends messages.  The receiver and a writer read them, each
 * from the beginning up to what has been appended.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_FILE_H
#define PAPPLY_SPOOL_FILE_H

#include "lib/stringinfo.h"
#include "storage/fileset.h"

#include "parallel_apply.h"

/* Identifies a file. */
typedef struct PapplySpoolFile
{
	FileSet		set;
	uint32		number;
} PapplySpoolFile;

/*
 * Header of a message in the file.  It is followed by length bytes of the
 * message, without the xid that streamed messages have after the kind.  The
 * header of a chunk is followed by nothing.
 */
typedef struct PapplySpooled
{
	TransactionId subxid;
	uint32		length;
	uint32		relation_version;	/* of a RELATION, for a writer that
									 * applies it in progress; or 0 */
	uint64		dependency;		/* of a chunk: number of the transaction that
								 * was received before it */
} PapplySpooled;

/* State of reading a file. */
typedef struct PapplySpoolReader
{
	PapplySpoolFile file;
	uint64		position;		/* next byte to read from the file */
	StringInfoData bytes;		/* read already; those from cursor on have not
								 * been returned */
} PapplySpoolReader;

/*
 * Return the number of bytes that should be appended or read at a time, given
 * the bytes before them.  Each access opens all segments of a large file.
 */
extern int	papply_spool_file_step(uint64 bytes);

/* Receiver: append whole messages to a file.  is_new creates the file. */
extern void papply_spool_file_append(PapplySpoolFile *file, bool is_new,
									 char *data, int length);

/* Receiver: remove what follows this position.  No process may read it. */
extern void papply_spool_file_truncate(PapplySpoolFile *file, uint64 position);

/* Receiver: delete a file. */
extern void papply_spool_file_delete(PapplySpoolFile *file);

/*
 * Start reading at the beginning.  The memory is in the current context, until
 * it is freed.
 */
extern void papply_spool_reader_init(PapplySpoolReader *reader, const PapplySpoolFile *file);
extern void papply_spool_reader_free(PapplySpoolReader *reader);

/* Return the position of the next message, or move it, to skip messages. */
extern uint64 papply_spool_reader_position(const PapplySpoolReader *reader);
extern void papply_spool_reader_skip(PapplySpoolReader *reader, uint64 position);

/*
 * Return the next message before position end, which must be the end of a
 * message; false if there is none.  The message is valid until the next call.
 * Throws an error if the file cannot be read.
 */
extern bool papply_spool_reader_next(PapplySpoolReader *reader, uint64 end,
									 PapplySpooled *head, char **message);

#endif							/* PAPPLY_SPOOL_FILE_H */
