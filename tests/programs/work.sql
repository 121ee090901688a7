-- SPDX-License-Identifier: MIT
-- What sqlite3 does under test: a table loaded, indexed, joined, changed and packed.
PRAGMA cache_size = -64000;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, part INTEGER, weight REAL, note BLOB);
WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 150000)
INSERT INTO item SELECT n, 'item ' || n * 7919 % 150001, n * 31 % 1000, n * 0.25, zeroblob(n % 50)
FROM count;
CREATE INDEX item_name ON item (name);
CREATE INDEX item_part ON item (part, weight);
SELECT part, count(*), sum(weight), group_concat(id % 10, '') FROM item
GROUP BY part ORDER BY part LIMIT 50;
SELECT a.name, b.name FROM item a JOIN item b ON b.id = a.part + 1 ORDER BY a.name DESC LIMIT 50;
UPDATE item SET name = upper(name) || hex(part) WHERE part % 3 = 0;
DELETE FROM item WHERE id % 5 = 0;
SELECT count(*), sum(length(name)), min(name), max(name) FROM item;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM (SELECT * FROM item LIMIT 2000);
VACUUM;
PRAGMA integrity_check;
