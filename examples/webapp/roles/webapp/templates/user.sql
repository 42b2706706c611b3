-- Executed by psql as administrator, and repeatable. The role webapp owns the data; the user of the Secret is its
-- only member that can log in.
\set ON_ERROR_STOP on
\getenv user WEBAPP_USER
\getenv password WEBAPP_PASSWORD
-- The server logs statements that fail, and one of them has the password.
SET log_min_error_statement = panic;

SELECT 'CREATE ROLE webapp NOLOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'webapp') \gexec
SELECT 'CREATE DATABASE webapp OWNER webapp'
  WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'webapp') \gexec
SELECT format('CREATE ROLE %I IN ROLE webapp', :'user')
  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') \gexec
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', :'user', :'password') \gexec
SELECT format('ALTER ROLE %I SET role = webapp', :'user') \gexec

-- Open sessions of former users continue until the backend is rolled.
SELECT format('ALTER ROLE %I NOLOGIN', former.rolname)
  FROM pg_auth_members JOIN pg_roles former ON former.oid = member
  WHERE roleid = 'webapp'::regrole AND former.rolname <> :'user' \gexec
