/*-------------------------------------------------------------------------
 * room: any
 *
 * result_rows.h
 *	  Rows that an SQL function returns, whatever version declared it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RESULT_ROWS_H
#define PAPPLY_RESULT_ROWS_H

#include "fmgr.h"
#include "funcapi.h"

/* A column that the library provides. */
typedef struct PapplyResultColumn
{
	const char *name;
	Oid			type;
} PapplyResultColumn;

typedef struct PapplyResultRows
{
	ReturnSetInfo *result;
	const int  *sources;		/* of each declared column, the one provided */
} PapplyResultRows;

/*
 * Begin the result of a function that returns a set of rows.  Throws if it is declared
 * with a column that is not among those provided.
 */
extern PapplyResultRows *papply_result_rows_begin(FunctionCallInfo fcinfo,
												  const PapplyResultColumn *columns, int length);

/* Add a row, of all provided columns in their order. */
extern void papply_result_rows_put(PapplyResultRows *rows, const Datum *values, const bool *nulls);

/* Return the row of a function that returns a single one; throws likewise. */
extern Datum papply_result_rows_single(FunctionCallInfo fcinfo,
									   const PapplyResultColumn *columns, int length,
									   const Datum *values, const bool *nulls);

#endif							/* PAPPLY_RESULT_ROWS_H */
