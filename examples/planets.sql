-- The sample database: the planets, and their larger moons. Radii are mean radii; days are of 24 hours.
CREATE TABLE planets (
  name TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('rocky', 'gas giant', 'ice giant')),
  radius_km REAL NOT NULL,
  distance_au REAL NOT NULL,
  orbit_days REAL NOT NULL
);

CREATE TABLE moons (
  name TEXT PRIMARY KEY,
  planet TEXT NOT NULL REFERENCES planets (name),
  radius_km REAL NOT NULL,
  orbit_days REAL NOT NULL,
  discovered INTEGER,
  discoverer TEXT
);

CREATE VIEW moon_counts AS
SELECT planets.name AS planet, count(moons.name) AS moons
FROM planets LEFT JOIN moons ON moons.planet = planets.name
GROUP BY planets.name;

INSERT INTO planets VALUES
  ('Mercury', 'rocky', 2439.7, 0.387, 87.969),
  ('Venus', 'rocky', 6051.8, 0.723, 224.701),
  ('Earth', 'rocky', 6371.0, 1.0, 365.256),
  ('Mars', 'rocky', 3389.5, 1.524, 686.98),
  ('Jupiter', 'gas giant', 69911, 5.203, 4332.59),
  ('Saturn', 'gas giant', 58232, 9.537, 10759.22),
  ('Uranus', 'ice giant', 25362, 19.191, 30688.5),
  ('Neptune', 'ice giant', 24622, 30.069, 60182);

INSERT INTO moons VALUES
  ('Moon', 'Earth', 1737.4, 27.322, NULL, NULL),
  ('Phobos', 'Mars', 11.1, 0.319, 1877, 'Asaph Hall'),
  ('Deimos', 'Mars', 6.2, 1.263, 1877, 'Asaph Hall'),
  ('Io', 'Jupiter', 1821.6, 1.769, 1610, 'Galileo Galilei'),
  ('Europa', 'Jupiter', 1560.8, 3.551, 1610, 'Galileo Galilei'),
  ('Ganymede', 'Jupiter', 2634.1, 7.155, 1610, 'Galileo Galilei'),
  ('Callisto', 'Jupiter', 2410.3, 16.689, 1610, 'Galileo Galilei'),
  ('Amalthea', 'Jupiter', 83.5, 0.498, 1892, 'Edward Barnard'),
  ('Mimas', 'Saturn', 198.2, 0.942, 1789, 'William Herschel'),
  ('Enceladus', 'Saturn', 252.1, 1.37, 1789, 'William Herschel'),
  ('Tethys', 'Saturn', 531.1, 1.888, 1684, 'Giovanni Cassini'),
  ('Dione', 'Saturn', 561.4, 2.737, 1684, 'Giovanni Cassini'),
  ('Rhea', 'Saturn', 763.8, 4.518, 1672, 'Giovanni Cassini'),
  ('Titan', 'Saturn', 2574.7, 15.945, 1655, 'Christiaan Huygens'),
  ('Iapetus', 'Saturn', 734.5, 79.322, 1671, 'Giovanni Cassini'),
  ('Phoebe', 'Saturn', 106.5, 550.3, 1899, 'William Pickering'),
  ('Miranda', 'Uranus', 235.8, 1.413, 1948, 'Gerard Kuiper'),
  ('Ariel', 'Uranus', 578.9, 2.52, 1851, 'William Lassell'),
  ('Umbriel', 'Uranus', 584.7, 4.144, 1851, 'William Lassell'),
  ('Titania', 'Uranus', 788.4, 8.706, 1787, 'William Herschel'),
  ('Oberon', 'Uranus', 761.4, 13.463, 1787, 'William Herschel'),
  ('Triton', 'Neptune', 1353.4, 5.877, 1846, 'William Lassell'),
  ('Nereid', 'Neptune', 170, 360.13, 1949, 'Gerard Kuiper'),
  ('Proteus', 'Neptune', 210, 1.122, 1989, 'Voyager 2');
