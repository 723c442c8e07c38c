"""The catalogue's tables and indexes; what an older bank lacks of them is made when it is opened."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, digest TEXT NOT NULL, text BLOB NOT NULL,
    characters INTEGER NOT NULL, metadata TEXT NOT NULL, added_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS documents_by_id ON documents (id, digest);
CREATE INDEX IF NOT EXISTS documents_by_digest ON documents (digest);
CREATE TABLE IF NOT EXISTS links (
    document_id TEXT NOT NULL, version INTEGER NOT NULL, chunk INTEGER NOT NULL, representation TEXT NOT NULL,
    write TEXT NOT NULL, key TEXT NOT NULL, text_digest TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (document_id, version, chunk, representation, write, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_by_key ON links (key);
CREATE INDEX IF NOT EXISTS links_by_text ON links (text_digest);
CREATE TABLE IF NOT EXISTS vectors (
    text_digest TEXT NOT NULL, embedder TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (text_digest, embedder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS page_lengths (
    text_digest TEXT NOT NULL, renderer TEXT NOT NULL, lengths TEXT NOT NULL, PRIMARY KEY (text_digest, renderer)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (key TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (digest TEXT PRIMARY KEY, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
TEXT_TABLES = ("vectors", "page_lengths")
"""What was computed about a text, by `text_digest`; it goes with the last document or chunk that has the text."""
