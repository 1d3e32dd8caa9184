-- Users of Barid in MySQL 5.7, MariaDB 10.2, and later.
--
-- name is {tenant}/{client}. Names are compared byte by byte, whatever the defaults of the server are.
-- password_hash is what `barid passwd` prints. NULL: the user cannot log in.
-- rights are JSON, such as {"publish": ["up/%c/#"], "subscribe": ["down/%c/#"]}. NULL: those of the tenant.
-- To remove a user at once, set enabled = 0: a row that is gone is not seen by the search for changes.
CREATE TABLE IF NOT EXISTS barid_users (
    name VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    password_hash VARCHAR(1024) CHARACTER SET ascii COLLATE ascii_bin NULL,
    rights JSON NULL,
    enabled TINYINT NOT NULL DEFAULT 1,
    changed_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    PRIMARY KEY (name),
    KEY barid_users_changed_at (changed_at)
) ENGINE = InnoDB;
