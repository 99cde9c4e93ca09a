/*-------------------------------------------------------------------------
 * replication_command.c
 *	  Read a command of the replication protocol.
 *
 * Runs in the receiver, in writers, and in a user's backend.
 *
 * The command of a walsender says what it sends.  Its options have values that
 * users choose, such as the names of publications, so the text is read by the
 * grammar of the server, from its beginning to its end, and nothing is searched
 * in it.  What is not understood, or not complete, is not the command in
 * question; the callers are safe then.
 *
 * These are pure functions, and they accept no command that the server would
 * read differently.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "slot_consumer.h"


static bool
is_space(char c)
{
	return c != '\0' && strchr(" \t\n\r\f\v", c) != NULL;
}

static bool
begins_identifier(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || IS_HIGHBIT_SET(c);
}

static bool
continues_identifier(char c)
{
	return begins_identifier(c) || (c >= '0' && c <= '9') || c == '$';
}

static bool
is_hex_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const char *
skip_space(const char *at)
{
	while (is_space(*at))
		at++;
	return at;
}

/*
 * Each of the following functions reads a token at *at, moves *at behind it and
 * the space that follows, and returns true; or returns false.
 */
static bool
read_keyword(const char **at, const char *keyword)
{
	size_t		length = strlen(keyword);

	if (strncmp(*at, keyword, length) != 0 || continues_identifier((*at)[length]))
		return false;
	*at = skip_space(*at + length);
	return true;
}

static bool
read_char(const char **at, char c)
{
	if (**at != c)
		return false;
	*at = skip_space(*at + 1);
	return true;
}

/* Read a value in quotes, of which the first NAMEDATALEN - 1 bytes are kept. */
static bool
read_quoted(const char **at, char quote, char *value)
{
	int			length = 0;

	if (**at != quote)
		return false;
	for ((*at)++; **at != '\0'; (*at)++)
	{
		if (**at == quote && *++(*at) != quote)
		{
			value[length] = '\0';
			*at = skip_space(*at);
			return true;
		}
		if (length < NAMEDATALEN - 1)
			value[length++] = **at;
	}
	return false;
}

static bool
read_identifier(const char **at, char *name)
{
	int			length = 0;

	if (**at == '"')
		return read_quoted(at, '"', name);
	if (!begins_identifier(**at))
		return false;
	for (; continues_identifier(**at); (*at)++)
		if (length < NAMEDATALEN - 1)
			name[length++] = pg_ascii_tolower((unsigned char) **at);
	name[length] = '\0';
	*at = skip_space(*at);
	return true;
}

static bool
read_position(const char **at)
{
	for (int half = 0; half < 2; half++)
	{
		if (!is_hex_digit(**at))
			return false;
		while (is_hex_digit(**at))
			(*at)++;
		if (half == 0 && *(*at)++ != '/')
			return false;
	}
	*at = skip_space(*at);
	return true;
}

/* Read the options of an output plugin.  The server allows each of ours once. */
static bool
read_options(const char **at, bool *omits_origins)
{
	char		name[NAMEDATALEN];
	char		value[NAMEDATALEN];

	if (!read_char(at, '('))
		return false;
	do
	{
		if (!read_identifier(at, name) || !read_quoted(at, '\'', value))
			return false;
		if (strcmp(name, "origin") == 0)
			*omits_origins = pg_strcasecmp(value, "none") == 0;
	} while (read_char(at, ','));
	return read_char(at, ')');
}

bool
papply_replication_command_omits_origins(const char *command, const char *slot_name)
{
	const char *at = skip_space(command);
	char		name[NAMEDATALEN];
	bool		omits_origins = false;

	if (!read_keyword(&at, "START_REPLICATION") || !read_keyword(&at, "SLOT") ||
		!read_identifier(&at, name) || strcmp(name, slot_name) != 0 ||
		!read_keyword(&at, "LOGICAL") || !read_position(&at) ||
		!read_options(&at, &omits_origins))
		return false;
	(void) read_char(&at, ';');
	return *at == '\0' && omits_origins;
}
