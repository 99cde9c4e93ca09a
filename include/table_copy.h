/*-------------------------------------------------------------------------
 * table_copy.h
 *	  Have the copy of a table replace its rows.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_COPY_H
#define PAPPLY_TABLE_COPY_H

/*
 * The position in pg_subscription_rel of a table in state INIT or DATASYNC whose rows are
 * to be removed in the transaction that copies it, by DELETE or by TRUNCATE.  No position of
 * WAL has these values, and the server stores none in these states.
 */
#define PAPPLY_TABLE_COPY_REPLACES PG_UINT64_MAX
#define PAPPLY_TABLE_COPY_TRUNCATES (PG_UINT64_MAX - 1)

/*
 * Called when a process connects to a publisher; effective in a worker that synchronizes a
 * table.
 */
extern void papply_table_copy_begin(void);

/*
 * Called when the publisher has begun to send a table, in the transaction that copies it.
 * Removes the rows, if they are to be replaced.
 */
extern void papply_table_copy_started(void);

#endif							/* PAPPLY_TABLE_COPY_H */
