-- What scripts/demo and the README's session look at: orders, log lines and images.
CREATE EXTENSION pageinspect;
CREATE FUNCTION words(n int, seed int) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg((ARRAY['order','customer','address','street','invoice','amount','delivered',
        'returned','the','of','and','to','in','pending','status','city'])[1 + abs(hashint8(i * 7919 + seed)) % 16], ' ')
    FROM generate_series(1, n) AS i $$;
-- events number "first" to "last" of an order's history
CREATE FUNCTION events(seed int, first int, last int) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_agg(jsonb_build_object('clerk', 100 + (seed + j) % 40, 'event',
        (ARRAY['order placed', 'payment received', 'address changed by the customer', 'handed to the carrier', 'returned',
            'invoice sent', 'delivered'])[1 + abs(hashint4(seed * 31 + j)) % 7]))
    FROM generate_series(first, last) AS j $$;
-- documents of about 1.2 kB, all in the row; a well-meant EXTERNAL keeps them from being compressed
CREATE TABLE orders (id int PRIMARY KEY, seen int NOT NULL DEFAULT 0, doc jsonb);
ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL;
INSERT INTO orders (id, doc)
SELECT i, jsonb_build_object('id', i, 'status', (ARRAY['new','paid','sent'])[1 + i % 3], 'note', words(10 + i % 20, i),
    'history', events(i, 1, 14))
FROM generate_series(1, 5000) AS i;
-- log lines, all in the row
CREATE TABLE log AS
SELECT i AS id, 'GET /' || md5(i::text) || ' 200 ' || words(6, i) AS line FROM generate_series(1, 10000) AS i;
-- images: compressed already
CREATE TABLE images (id int PRIMARY KEY, name text, data bytea);
INSERT INTO images
SELECT i, 'image' || i, (SELECT string_agg(sha512((i * 1000 + j)::text::bytea), '') FROM generate_series(1, 30 + i % 400) AS j)
FROM generate_series(1, 800) AS i;
VACUUM ANALYZE;
