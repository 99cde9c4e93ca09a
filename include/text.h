/*-------------------------------------------------------------------------
 * text.h
 *	  Texts that are truncated to whole and valid characters.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TEXT_H
#define PAPPLY_TEXT_H

#include "mb/pg_wchar.h"

/*
 * Return how many bytes of a text of length bytes, up to limit, are whole and
 * valid characters.  What comes from a publisher need not be valid.
 */
static inline int
papply_text_clip(const char *source, int length, int limit)
{
	return pg_encoding_verifymbstr(GetDatabaseEncoding(), source, Min(length, limit));
}

/*
 * Copy as much of source as size bytes of target hold, in whole and valid
 * characters and with the terminating zero byte.  NULL is copied as the empty
 * string.
 */
static inline void
papply_text_copy(char *target, const char *source, int size)
{
	int			length = source ? papply_text_clip(source, strlen(source), size - 1) : 0;

	memcpy(target, source ? source : "", length);
	target[length] = '\0';
}

#endif							/* PAPPLY_TEXT_H */
