-- Tables as people have them; every value follows from its row's number.
CREATE FUNCTION n(seed bigint, most integer) RETURNS integer LANGUAGE sql IMMUTABLE AS
$$ SELECT ((hashint8(seed) & 2147483647) % most)::integer $$;

CREATE FUNCTION noise(seed bigint, bytes integer) RETURNS bytea LANGUAGE sql IMMUTABLE AS
$$ SELECT substr(string_agg(sha512((seed * 100003 + i)::text::bytea), '' ORDER BY i), 1, bytes)
   FROM generate_series(0, bytes / 64) AS i $$;

CREATE FUNCTION words(seed bigint, count integer) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT string_agg((ARRAY['the', 'server', 'stores', 'long', 'values', 'of', 'a', 'row', 'apart',
   'from', 'it', 'in', 'chunks', 'compressed', 'or', 'not', 'and', 'reads', 'them', 'back', 'when',
   'query', 'asks', 'for', 'column', 'film', 'actor', 'city', 'street', 'river'])
   [1 + n(seed * 1009 + i, 30)] || CASE WHEN n(seed + i * 31, 9) = 0
   THEN n(seed * 7 + i, 100000)::text ELSE '' END, ' ' ORDER BY i) FROM generate_series(1, count) AS i $$;

-- the talks' synthetic documents: two short keys and two growing arrays
CREATE TABLE talk AS SELECT i AS id, jsonb_build_object('key1', i, 'key2',
  (SELECT jsonb_agg(k) FROM generate_series(1, 1 + i / 6) AS k), 'key3', 'short', 'key4',
  (SELECT jsonb_agg(n(i * 3001 + k, 1000000)) FROM generate_series(1, 1 + i / 12) AS k)) AS v
  FROM generate_series(1, 3000) AS i;
-- documents of 1,000 keys
CREATE TABLE thousand AS SELECT i AS id, (SELECT jsonb_object_agg('key' || k, n(i * 1000 + k, 1000000))
  FROM generate_series(1, 1000) AS k) AS v FROM generate_series(1, 500) AS i;
CREATE TABLE films AS SELECT i AS id, n(i, 50) + 1970 AS year, jsonb_build_object('title', words(i, 4),
  'plot', words(i * 3, 40 + n(i, 300)), 'rating', n(i, 100) / 10.0, 'cast', (SELECT jsonb_agg(
  jsonb_build_object('name', words(i * 17 + k, 2), 'role', words(i * 19 + k, 3), 'id', n(i + k, 100000)))
  FROM generate_series(1, 5 + n(i, 60)) AS k)) AS v FROM generate_series(1, 2000) AS i;
CREATE TABLE logs AS SELECT i AS id, timestamp '2022-01-01' + i * interval '1 second' AS at,
  '10.0.' || n(i, 250) || '.' || n(i * 3, 250) || ' "GET /' || words(i, 3 + n(i, 5)) || '" 200 ' ||
  CASE WHEN n(i, 40) = 0 THEN words(i, 400) ELSE words(i, 20) END AS v FROM generate_series(1, 15000) AS i;
CREATE TABLE images AS SELECT i AS id, encode(noise(i, 1500 + n(i, 12000)), 'base64') AS v, now() AS at
  FROM generate_series(1, 2000) AS i;
CREATE TABLE html AS SELECT i AS id, '<html><body>' || (SELECT string_agg('<div class="item"><a href="/p/'
  || n(i + k, 100000) || '">' || words(i * 100 + k, 12) || '</a></div>', chr(10))
  FROM generate_series(1, 3 + n(i, 60)) AS k) || '</body></html>' AS v FROM generate_series(1, 1500) AS i;
CREATE TABLE geo AS SELECT i AS id, jsonb_build_object('type', 'Polygon', 'coordinates', (SELECT
  jsonb_agg(jsonb_build_array(n(i * 7 + k, 360000000) / 1000000.0, n(i * 11 + k, 180000000) / 1000000.0))
  FROM generate_series(1, 10 + n(i, 250)) AS k)) AS v FROM generate_series(1, 2500) AS i;
CREATE TABLE search AS SELECT i AS id, to_tsvector('simple', (SELECT string_agg('w' || n(i * 977 + k, 20000), ' ')
  FROM generate_series(1, 50 + n(i, 500)) AS k)) AS v FROM generate_series(1, 2500) AS i;
CREATE TABLE random AS SELECT i AS id, noise(i, 500 + n(i, 6000)) AS v FROM generate_series(1, 4000) AS i;
CREATE TABLE mixed AS SELECT i AS id, repeat('name ', 150) || i AS name, convert_to(words(i, (10 * power(10000, n(i, 1000) / 1000.0))
  ::integer / 2 + 5), 'UTF8') AS v FROM generate_series(1, 500) AS i;
CREATE TABLE digests AS SELECT i AS id, (SELECT string_agg(md5((i * 100 + k)::text) || ' ' || words(i + k, 6), ' ')
  FROM generate_series(1, 10 + n(i, 120)) AS k) AS v FROM generate_series(1, 1500) AS i;
CREATE TABLE small AS SELECT i AS id, i % 7 AS kind, words(i, 100 + n(i, 500)) AS v, noise(i, n(i, 200)) AS other
  FROM generate_series(1, 4000) AS i;
ANALYZE;
