-- tpcc.sql - tables, data and write transactions of TPC-C, for workloads.sh.
--
-- psql reads it with the variable "warehouses".  What a transaction reads only to show
-- it on a terminal is left out: a subscriber sees row changes and nothing else.  Text
-- consists of hexadecimal digits, where the specification has letters as well.
--
-- Transactions cannot run into deadlocks, which would end pgbench: each locks warehouse,
-- district and customer in this order, stock in the order of its key, and Delivery,
-- which locks customers of several districts, takes the districts in ascending order
-- and waits for nothing but customers.

SET maintenance_work_mem = '256MB';
SELECT setseed(0.26) \g /dev/null

CREATE TABLE warehouse (w_id int, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20),
	w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2));
CREATE TABLE district (d_id smallint, d_w_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20),
	d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int);
CREATE TABLE customer (c_id int, c_d_id smallint, c_w_id int, c_first varchar(16), c_middle char(2), c_last varchar(16),
	c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16),
	c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
	c_ytd_payment numeric(12,2), c_payment_cnt smallint, c_delivery_cnt smallint, c_data varchar(500));
CREATE TABLE history (h_c_id int, h_c_d_id smallint, h_c_w_id int, h_d_id smallint, h_w_id int, h_date timestamp,
	h_amount numeric(6,2), h_data varchar(24));
CREATE TABLE new_order (no_o_id int, no_d_id smallint, no_w_id int);
CREATE TABLE orders (o_id int, o_d_id smallint, o_w_id int, o_c_id int, o_entry_d timestamp, o_carrier_id smallint,
	o_ol_cnt smallint, o_all_local smallint);
CREATE TABLE order_line (ol_o_id int, ol_d_id smallint, ol_w_id int, ol_number smallint, ol_i_id int, ol_supply_w_id int,
	ol_delivery_d timestamp, ol_quantity smallint, ol_amount numeric(6,2), ol_dist_info char(24));
CREATE TABLE item (i_id int, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
CREATE TABLE stock (s_i_id int, s_w_id int, s_quantity smallint, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24),
	s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24),
	s_dist_10 char(24), s_ytd int, s_order_cnt smallint, s_remote_cnt smallint, s_data varchar(50));

-- ------------------------------------------------------------------ random values

CREATE FUNCTION uniform(low int, high int) RETURNS int LANGUAGE sql
	RETURN low + floor(random() * (high - low + 1))::int;

-- The specification's non-uniform distribution; offset is its constant C.
CREATE FUNCTION nurand(mask int, low int, high int, "offset" int) RETURNS int LANGUAGE sql
	RETURN ((uniform(0, mask) | uniform(low, high)) + "offset") % (high - low + 1) + low;

CREATE FUNCTION random_customer() RETURNS int LANGUAGE sql RETURN nurand(1023, 1, 3000, 259);
CREATE FUNCTION random_item() RETURNS int LANGUAGE sql RETURN nurand(8191, 1, 100000, 7911);

CREATE FUNCTION last_name(n int) RETURNS text LANGUAGE sql IMMUTABLE
	RETURN (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[n / 100 + 1]
		|| (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[n / 10 % 10 + 1]
		|| (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[n % 10 + 1];

-- Hexadecimal digits, others for each n; md5() would take most of the time of loading.
CREATE FUNCTION digits(n int, length int) RETURNS text LANGUAGE sql
	RETURN left(repeat(to_hex(hashint8extended(n, 0)), 40), length);
CREATE FUNCTION digits(low int, high int, n int) RETURNS text LANGUAGE sql
	RETURN digits(n, uniform(low, high));

-- i_data and s_data: a tenth has a certain word in it.
CREATE FUNCTION item_data(n int) RETURNS text LANGUAGE sql
	RETURN CASE WHEN uniform(1, 10) = 1 THEN 'ORIGINAL' ELSE '' END || digits(26, 42, n);

-- ------------------------------------------------------------------ data

INSERT INTO item SELECT n, uniform(1, 10000), digits(14, 24, n), uniform(100, 10000) / 100.0, item_data(n)
	FROM generate_series(1, 100000) n;

INSERT INTO warehouse SELECT w, digits(6, 10, w), digits(10, 20, w), digits(10, 20, w), digits(10, 20, w), digits(w, 2),
		lpad(uniform(0, 9999)::text, 4, '0') || '11111', uniform(0, 2000) / 10000.0, 300000
	FROM generate_series(1, :warehouses) w;

INSERT INTO district SELECT d, w, digits(6, 10, d), digits(10, 20, d), digits(10, 20, d), digits(10, 20, d), digits(d, 2),
		lpad(uniform(0, 9999)::text, 4, '0') || '11111', uniform(0, 2000) / 10000.0, 30000, 3001
	FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;

INSERT INTO stock SELECT n, w, uniform(10, 100), digits(n, 24), digits(n + 1, 24), digits(n + 2, 24), digits(n + 3, 24),
		digits(n + 4, 24), digits(n + 5, 24), digits(n + 6, 24), digits(n + 7, 24), digits(n + 8, 24), digits(n + 9, 24),
		0, 0, 0, item_data(n)
	FROM generate_series(1, :warehouses) w, generate_series(1, 100000) n;

-- Each last name is there; the others are as frequent as payments ask for them.
INSERT INTO customer SELECT c, d, w, digits(8, 16, c), 'OE', last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE nurand(255, 0, 999, 123) END),
		digits(10, 20, c), digits(10, 20, c), digits(10, 20, c), digits(c, 2), lpad(uniform(0, 9999)::text, 4, '0') || '11111',
		digits(c, 16), now(), CASE WHEN uniform(1, 10) = 1 THEN 'BC' ELSE 'GC' END, 50000, uniform(0, 5000) / 10000.0,
		-10, 10, 1, 0, digits(300, 500, c)
	FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;

INSERT INTO history SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, digits(12, 24, c_id) FROM customer;

-- An order of each customer, in random order; the last 900 of a district are new.
INSERT INTO orders SELECT row_number() OVER (PARTITION BY c_w_id, c_d_id ORDER BY random()), c_d_id, c_w_id, c_id, now(),
		NULL, uniform(5, 15), 1
	FROM customer;
UPDATE orders SET o_carrier_id = uniform(1, 10) WHERE o_id <= 2100;
VACUUM FULL orders;
INSERT INTO new_order SELECT o_id, o_d_id, o_w_id FROM orders WHERE o_id > 2100;
INSERT INTO order_line SELECT o_id, o_d_id, o_w_id, number, uniform(1, 100000), o_w_id,
		CASE WHEN o_id <= 2100 THEN o_entry_d END, 5, CASE WHEN o_id <= 2100 THEN 0 ELSE uniform(1, 999999) / 100.0 END,
		digits(o_id + number, 24)
	FROM orders, generate_series(1, o_ol_cnt) number;

ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX customer_by_last_name ON customer (c_w_id, c_d_id, c_last, c_first);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);

-- ------------------------------------------------------------------ transactions

-- Warehouses are those from first to last, home among them.
CREATE FUNCTION another_warehouse(home int, first int, last int) RETURNS int LANGUAGE sql
	RETURN CASE WHEN first = last THEN home ELSE (home - first + uniform(1, last - first)) % (last - first + 1) + first END;

-- One in a hundred asks for an item that does not exist, as its last one, and rolls back.
CREATE PROCEDURE tpcc_new_order(home int, first int, last int, seed float8) LANGUAGE plpgsql AS $$
DECLARE
	district_id smallint;
	order_id int;
	fails bool;
	items int[];
	suppliers int[];
	quantity int;
	price numeric;
	info text;
BEGIN
	PERFORM setseed(seed);
	district_id := uniform(1, 10);
	fails := uniform(1, 100) = 1;
	SELECT array_agg(item ORDER BY supplier, item), array_agg(supplier ORDER BY supplier, item) INTO items, suppliers
		FROM (SELECT random_item() AS item,
				CASE WHEN uniform(1, 100) = 1 THEN another_warehouse(home, first, last) ELSE home END AS supplier
			FROM generate_series(1, uniform(5, 15))) line;

	UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = home AND d_id = district_id
		RETURNING d_next_o_id - 1 INTO order_id;
	INSERT INTO orders VALUES (order_id, district_id, home, random_customer(), now(), NULL, cardinality(items),
		(home = ALL (suppliers))::int);
	INSERT INTO new_order VALUES (order_id, district_id, home);
	FOR n IN 1 .. cardinality(items) LOOP
		SELECT i_price INTO price FROM item
			WHERE i_id = CASE WHEN fails AND n = cardinality(items) THEN 0 ELSE items[n] END;
		IF NOT FOUND THEN
			ROLLBACK;
			RETURN;
		END IF;
		quantity := uniform(1, 10);
		UPDATE stock SET s_quantity = s_quantity - quantity + CASE WHEN s_quantity - quantity < 10 THEN 91 ELSE 0 END,
				s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1,
				s_remote_cnt = s_remote_cnt + (s_w_id <> home)::int
			WHERE s_w_id = suppliers[n] AND s_i_id = items[n]
			RETURNING CASE district_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
				WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07
				WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END INTO info;
		INSERT INTO order_line VALUES (order_id, district_id, home, n, items[n], suppliers[n], NULL, quantity,
			quantity * price, info);
	END LOOP;
END $$;

-- 15 of a hundred customers pay elsewhere, 60 of a hundred say their last name.
CREATE PROCEDURE tpcc_payment(home int, first int, last int, seed float8) LANGUAGE plpgsql AS $$
DECLARE
	district_id smallint;
	customer_id int;
	customer_district smallint;
	customer_warehouse int := home;
	amount numeric;
	warehouse_name text;
	district_name text;
BEGIN
	PERFORM setseed(seed);
	district_id := uniform(1, 10);
	customer_district := district_id;
	amount := uniform(100, 500000) / 100.0;
	IF uniform(1, 100) <= 15 THEN
		customer_warehouse := another_warehouse(home, first, last);
		customer_district := uniform(1, 10);
	END IF;

	UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = home RETURNING w_name INTO warehouse_name;
	UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = home AND d_id = district_id RETURNING d_name INTO district_name;
	customer_id := random_customer();
	IF uniform(1, 100) <= 60 THEN
		-- Of several customers the one in the middle.
		SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO customer_id
			FROM customer, (SELECT last_name(nurand(255, 0, 999, 208)) AS wanted OFFSET 0) name
			WHERE c_w_id = customer_warehouse AND c_d_id = customer_district AND c_last = wanted;
	END IF;
	UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
			c_payment_cnt = c_payment_cnt + 1,
			c_data = CASE c_credit WHEN 'BC' THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, district_id, home, amount, c_data), 500)
				ELSE c_data END
		WHERE c_w_id = customer_warehouse AND c_d_id = customer_district AND c_id = customer_id;
	INSERT INTO history VALUES (customer_id, customer_district, customer_warehouse, district_id, home, now(), amount,
		warehouse_name || '    ' || district_name);
END $$;

-- The oldest new order of each district.
CREATE PROCEDURE tpcc_delivery(home int, seed float8) LANGUAGE plpgsql AS $$
DECLARE
	carrier smallint;
	order_id int;
	customer_id int;
	total numeric;
BEGIN
	PERFORM setseed(seed);
	carrier := uniform(1, 10);
	FOR district_id IN 1 .. 10 LOOP
		DELETE FROM new_order WHERE no_w_id = home AND no_d_id = district_id AND no_o_id =
			(SELECT no_o_id FROM new_order WHERE no_w_id = home AND no_d_id = district_id
				ORDER BY no_o_id LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING no_o_id INTO order_id;
		CONTINUE WHEN NOT FOUND;
		UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = home AND o_d_id = district_id AND o_id = order_id
			RETURNING o_c_id INTO customer_id;
		WITH delivered AS (
			UPDATE order_line SET ol_delivery_d = now()
				WHERE ol_w_id = home AND ol_d_id = district_id AND ol_o_id = order_id RETURNING ol_amount)
			SELECT sum(ol_amount) INTO total FROM delivered;
		UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
			WHERE c_w_id = home AND c_d_id = district_id AND c_id = customer_id;
	END LOOP;
END $$;
