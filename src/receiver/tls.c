/*-------------------------------------------------------------------------
 * tls.c
 *	  Read several messages of an encrypted connection at once.
 *
 * Runs in the receiver.  The pool turns it on.
 *
 * A walsender sends each message as a TLS record of its own.  OpenSSL reads a
 * record with two system calls, one for its header and one for the rest, unless
 * its option "read ahead" is on.  Then it reads as much as there is, up to the
 * size of its buffer of 16 kB.  For a TPC-B transaction, the apply worker needs
 * half of the processor time then (bench/catchup --connection tls).
 *
 * libpq does not turn the option on, because it waits for the socket when it
 * needs more, and does not know of records that OpenSSL has read ahead.  So the
 * receiver calls papply_tls_has_more() before it waits: OpenSSL decrypts the next
 * record if it has all of it, and libpq then reads that without waiting.
 *
 * PostgreSQL's own apply waits for the socket without asking, so the option is
 * turned off when the pool stops.  Messages go straight to the core apply loop
 * only when nothing is left that was read ahead.
 *
 * The server has loaded libpq and OpenSSL, and may have been built without the
 * latter.  So the functions are looked up by name, and if one is missing,
 * everything is as without this file.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <dlfcn.h>

#include "tls.h"

/* Functions of libpq and OpenSSL; see libpq-fe.h and openssl/ssl.h. */
typedef struct TlsFunctions
{
	void	   *(*get_ssl) (void *pgconn, const char *name);	/* PQsslStruct */
	void		(*set_read_ahead) (void *ssl, int yes);
	int			(*has_pending) (const void *ssl);
	int			(*peek) (void *ssl, void *buffer, int length);
} TlsFunctions;

typedef struct TlsState
{
	TlsFunctions functions;
	void	   *ssl;			/* NULL: nothing can have been read ahead */
	bool		is_on;
} TlsState;

static TlsState tls;

static bool
look_up(TlsFunctions *functions)
{
	*(void **) &functions->get_ssl = dlsym(RTLD_DEFAULT, "PQsslStruct");
	*(void **) &functions->set_read_ahead = dlsym(RTLD_DEFAULT, "SSL_set_read_ahead");
	*(void **) &functions->has_pending = dlsym(RTLD_DEFAULT, "SSL_has_pending");
	*(void **) &functions->peek = dlsym(RTLD_DEFAULT, "SSL_peek");
	return functions->get_ssl != NULL && functions->set_read_ahead != NULL &&
		functions->has_pending != NULL && functions->peek != NULL;
}

static void
set_read_ahead(bool is_on)
{
	tls.functions.set_read_ahead(tls.ssl, is_on);
	tls.is_on = is_on;
	elog(DEBUG1, "reading ahead of TLS records is %s", is_on ? "on" : "off");
}

void
papply_tls_begin(WalReceiverConn *conn)
{
	if (look_up(&tls.functions))
		tls.ssl = tls.functions.get_ssl(papply_compat_pgconn(conn), "OpenSSL");
	if (tls.ssl != NULL)
		set_read_ahead(true);
}

void
papply_tls_end(void)
{
	if (tls.ssl != NULL)
		set_read_ahead(false);
}

bool
papply_tls_is_native(void)
{
	if (tls.ssl != NULL && !tls.is_on && !tls.functions.has_pending(tls.ssl))
		tls.ssl = NULL;
	return tls.ssl == NULL;
}

/*
 * Has OpenSSL a whole record?  A part of one does not count: the rest makes the
 * socket readable.  An error counts as nothing, since libpq will get it, too.
 */
bool
papply_tls_has_more(void)
{
	char		byte;

	return tls.ssl != NULL && tls.functions.has_pending(tls.ssl) &&
		tls.functions.peek(tls.ssl, &byte, 1) > 0;
}

#ifdef PAPPLY_SELFTEST
bool
papply_tls_check(void)
{
	void	   *(*get_rbio) (const void *ssl);
	uint64		(*number_read) (void *bio);
	uint64		before;

	*(void **) &get_rbio = dlsym(RTLD_DEFAULT, "SSL_get_rbio");
	*(void **) &number_read = dlsym(RTLD_DEFAULT, "BIO_number_read");
	if (tls.ssl == NULL || get_rbio == NULL || number_read == NULL)
		return false;
	before = number_read(get_rbio(tls.ssl));
	if (!papply_tls_has_more())
		return false;
	if (number_read(get_rbio(tls.ssl)) == before)
		elog(PANIC, "a TLS record that has been read ahead is left");
	return true;				/* it has arrived just now */
}
#endif
