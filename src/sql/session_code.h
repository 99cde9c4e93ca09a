/*-------------------------------------------------------------------------
 * session_code.h
 *	  Triggers whose functions may rely on state of their session.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_CODE_H
#define PAPPLY_SESSION_CODE_H

#include "parallel_apply.h"

typedef struct PapplySessionCode
{
	NameData	trigger;
	Oid			function;
	const char *word;			/* that the function contains */
} PapplySessionCode;

/*
 * Find a trigger of the table that fires when the change of a row is applied,
 * and whose function contains a word of the list in session_code.c.  Returns
 * false if there is none.  The caller is in a transaction.
 */
extern bool papply_session_code_find(Oid relid, PapplySessionCode *code);

#endif							/* PAPPLY_SESSION_CODE_H */
