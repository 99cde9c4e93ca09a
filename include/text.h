/*-------------------------------------------------------------------------
 * text.h
 *	  Texts that are truncated to whole characters.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TEXT_H
#define PAPPLY_TEXT_H

#include "mb/pg_wchar.h"

/*
 * Copy as much of source as size bytes of target hold, in whole characters and
 * with the terminating zero byte.  NULL is copied as the empty string.
 */
static inline void
papply_text_copy(char *target, const char *source, int size)
{
	int			length = source ? pg_mbcliplen(source, strlen(source), size - 1) : 0;

	memcpy(target, source ? source : "", length);
	target[length] = '\0';
}

#endif							/* PAPPLY_TEXT_H */
