-- Tables whose advice scripts/bench advice and tests/it/advice_true.rs carry out. Each has about :kb kilobytes of raw
-- content in its column v; its comment says what it stands for.

-- Text of hexadecimal digits and words, of which compression leaves about half.
CREATE FUNCTION words(seed int, bytes int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(string_agg(md5((seed * 7919 + k)::text) || ' and what other rows have', ''), bytes)
    FROM generate_series(1, bytes / 57 + 1) AS k $$;

-- Bytes that no method compresses.
CREATE FUNCTION noise(seed int, bytes int) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(string_agg(sha512((seed * 7919 + k)::text::bytea), ''), 1, bytes)
    FROM generate_series(1, bytes / 64 + 1) AS k $$;

-- A document of about this number of bytes.
CREATE FUNCTION document(seed int, bytes int) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_object_agg('attribute_' || k, CASE k % 3
        WHEN 0 THEN to_jsonb(md5((seed * 7919 + k)::text)) WHEN 1 THEN to_jsonb(seed * k % 1000)
        ELSE to_jsonb('value ' || (seed + k) % 50) END)
    FROM generate_series(1, bytes / 37 + 1) AS k $$;

CREATE TABLE documents_500 AS SELECT i AS id, document(i, 500) AS v FROM generate_series(1, :kb * 2) AS i;
COMMENT ON TABLE documents_500 IS 'documents of 0.5 kB';
CREATE TABLE documents_2k AS SELECT i AS id, document(i, 2000) AS v FROM generate_series(1, :kb / 2) AS i;
COMMENT ON TABLE documents_2k IS 'documents of 2 kB';
CREATE TABLE documents_8k AS SELECT i AS id, document(i, 8000) AS v FROM generate_series(1, :kb / 8) AS i;
COMMENT ON TABLE documents_8k IS 'documents of 8 kB';
CREATE TABLE documents_50k AS SELECT i AS id, document(i, 50000) AS v FROM generate_series(1, :kb / 50) AS i;
COMMENT ON TABLE documents_50k IS 'documents of 50 kB';
CREATE TABLE documents_mixed AS
SELECT i AS id, document(i, 500 + (i * 7919) % 6000) AS v FROM generate_series(1, :kb * 2 / 7) AS i;
COMMENT ON TABLE documents_mixed IS 'documents of 0.5 to 6.5 kB';
CREATE TABLE bimodal AS
SELECT i AS id, words(i, CASE WHEN i % 2 = 0 THEN 200 ELSE 20000 END) AS v FROM generate_series(1, :kb / 10) AS i;
COMMENT ON TABLE bimodal IS 'bimodal: 0.2 or 20 kB';
CREATE TABLE around_2k AS
SELECT i AS id, words(i, 1200 + (i * 7919) % 1400) AS v FROM generate_series(1, :kb / 2) AS i;
COMMENT ON TABLE around_2k IS 'text of 1.2 to 2.6 kB';
CREATE TABLE several_wide AS
SELECT i AS id, words(i, 900) AS v, words(-i, 700 + i % 300) AS w, words(i + 99, 500 + i % 900) AS x
FROM generate_series(1, :kb) AS i;
COMMENT ON TABLE several_wide IS 'three columns of 0.5 to 1.4 kB';
CREATE TABLE several_large AS
SELECT i AS id, words(i, 3000) AS v, noise(i, 1500) AS w, document(i, 2500) AS x FROM generate_series(1, :kb / 3) AS i;
COMMENT ON TABLE several_large IS 'three columns of 1.5 to 3 kB';
CREATE TABLE repetitive AS
SELECT i AS id, repeat('line ' || i || ' of a log; ', 800) AS v FROM generate_series(1, :kb / 18) AS i;
COMMENT ON TABLE repetitive IS 'repetitive text of 18 kB';
CREATE TABLE random_4k AS SELECT i AS id, noise(i, 3700) AS v FROM generate_series(1, :kb / 4) AS i;
COMMENT ON TABLE random_4k IS 'random bytes, 3.7 kB';
CREATE TABLE random_1k AS SELECT i AS id, noise(i, 1100) AS v FROM generate_series(1, :kb) AS i;
COMMENT ON TABLE random_1k IS 'random bytes, 1.1 kB';
CREATE TABLE mostly_null AS
SELECT i AS id, 'row ' || i AS name, CASE WHEN i % 20 = 0 THEN words(i, 5000) END AS v
FROM generate_series(1, :kb * 4) AS i;
COMMENT ON TABLE mostly_null IS 'mostly NULL, else 5 kB';
CREATE TABLE updated (id int, n int DEFAULT 0, v text);
INSERT INTO updated SELECT i, 0, words(i, 4000) FROM generate_series(1, :kb / 4) AS i;
UPDATE updated SET v = words(id + 7, 5000) WHERE id % 3 = 0;
UPDATE updated SET n = 1 WHERE id % 2 = 0;
COMMENT ON TABLE updated IS 'a third of the values updated';
CREATE TABLE deleted AS SELECT i AS id, words(i, 4000) AS v FROM generate_series(1, :kb / 4) AS i;
DELETE FROM deleted WHERE id % 3 <> 0;
COMMENT ON TABLE deleted IS 'two thirds of the rows deleted';
CREATE TABLE partitioned (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE partitioned_1 PARTITION OF partitioned FOR VALUES FROM (1) TO (:kb / 12);
CREATE TABLE partitioned_2 PARTITION OF partitioned FOR VALUES FROM (:kb / 12) TO (:kb);
INSERT INTO partitioned SELECT i, words(i, 2000 + i % 8000) FROM generate_series(1, :kb / 6) AS i;
COMMENT ON TABLE partitioned IS 'two partitions, 2 to 10 kB';
CREATE TABLE fillfactor_50 (id int, v text) WITH (fillfactor = 50);
INSERT INTO fillfactor_50 SELECT i, words(i, 600 + i % 4000) FROM generate_series(1, :kb * 2 / 5) AS i;
COMMENT ON TABLE fillfactor_50 IS 'fillfactor 50, 0.6 to 4.6 kB';
CREATE TABLE arrays AS
SELECT i AS id, (SELECT array_agg(i * k % 5000) FROM generate_series(1, 200 + i % 1500) AS k) AS v
FROM generate_series(1, :kb / 4) AS i;
COMMENT ON TABLE arrays IS 'arrays of 200 to 1700 integers';
CREATE TABLE skewed AS
SELECT i AS id, words(i, CASE WHEN i > :kb * 9 / 10 THEN 8000 ELSE 300 END) AS v FROM generate_series(1, :kb) AS i;
COMMENT ON TABLE skewed IS 'small values, at the end large ones';
CREATE TABLE external (id int, v text);
ALTER TABLE external ALTER v SET STORAGE external;
INSERT INTO external SELECT i, words(i, 10000) FROM generate_series(1, :kb / 10) AS i;
COMMENT ON TABLE external IS 'compressible, stored external, 10 kB';
CREATE TABLE with_gin (id int PRIMARY KEY, v jsonb);
CREATE INDEX ON with_gin USING gin (v);
INSERT INTO with_gin SELECT i, document(i, 6000) FROM generate_series(1, :kb / 6) AS i;
COMMENT ON TABLE with_gin IS 'documents of 6 kB with a GIN index';
CREATE TABLE stored_main (id int, v text);
ALTER TABLE stored_main ALTER v SET STORAGE main;
INSERT INTO stored_main SELECT i, words(i, 1000 + i % 5000) FROM generate_series(1, :kb * 2 / 7) AS i;
COMMENT ON TABLE stored_main IS 'stored main, 1 to 6 kB';
CREATE TABLE low_target (id int, v text, w text) WITH (toast_tuple_target = 256);
INSERT INTO low_target SELECT i, words(i, 1500), words(-i, 1500) FROM generate_series(1, :kb / 3) AS i;
COMMENT ON TABLE low_target IS 'toast_tuple_target 256, two columns of 1.5 kB';
