/*-------------------------------------------------------------------------
 * version.h
 *	  Versions of the library and of the extension's SQL objects.
 *
 * A release has a version X.Y.Z.  This is the version of the library,
 * PAPPLY_VERSION, which the Makefile takes from META.json.  The version of its
 * SQL objects is X.Y.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_VERSION_H
#define PAPPLY_VERSION_H

/* Return the version of the extension in the current database, or "none". */
extern const char *papply_version_installed(void);

/*
 * Add an errhint() on what to do if SQL objects of this version do not match
 * the library.
 */
extern int	papply_version_hint(const char *sql_version);

#endif							/* PAPPLY_VERSION_H */
