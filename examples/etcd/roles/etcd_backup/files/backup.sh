# Saves a snapshot of the first endpoint that answers in $FOLDER or at $GCS_PATH, keeps $MAX_BACKUPS, and reports it as
# JSON. A program that fails leaves its error on the standard error, from which Kubernetes takes the message.
set -eu
umask 077

if [ -n "${CLIENT_CRT:-}" ]; then
  printf '%s\n' "$CLIENT_CRT" > /tmp/client.crt
  printf '%s\n' "$CLIENT_KEY" > /tmp/client.key
  printf '%s\n' "$CLIENT_CA_CRT" > /tmp/ca.crt
  export ETCDCTL_CERT=/tmp/client.crt ETCDCTL_KEY=/tmp/client.key ETCDCTL_CACERT=/tmp/ca.crt
fi

status=
for endpoint in $ENDPOINTS; do
  status=$(etcdctl --endpoints="$endpoint" --write-out=json endpoint status) && break
done
[ -n "$status" ]
version=$(printf '%s' "$status" | sed 's/.*"Status":{.*"version":"\([^"]*\)".*/\1/')

mkdir -p "$FOLDER"
file=$FOLDER/$(date -u +%Y%m%d%H%M%S).db
# Written under another name until it is complete.
etcdctl --endpoints="$endpoint" snapshot save "$file" > /tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
revision=$(etcdutl --write-out=json snapshot status "$file" | sed 's/.*"revision":\([0-9]*\).*/\1/')

if [ -n "${GCS_PATH:-}" ]; then
  authorize
  # Backups at intervals have different names.
  [ -z "${INTERVAL:-}" ] || object=$object-$(basename "$file" .db)
  storage --output /dev/null --header "Content-Type: application/octet-stream" --request POST --upload-file "$file" \
    "$GCS_URL/upload/storage/v1/b/$bucket/o?uploadType=media&name=$object"
  path=$bucket/$object
  if [ -n "${MAX_BACKUPS:-}" ] && [ -n "${INTERVAL:-}" ]; then
    # Objects of others may have names that begin like these.
    prefix=${GCS_PATH#*/}-
    name="$(echo "$prefix" | sed 's/\./\\./g')[0-9]\{14\}"
    storage --output /tmp/objects "$GCS_URL/storage/v1/b/$bucket/o?prefix=$prefix"
    for old in $(tr ',{}' '\n' < /tmp/objects | sed -n "s|.*\"name\": *\"\($name\)\".*|\1|p" | sort -r | tail -n "+$((MAX_BACKUPS + 1))"); do
      storage --output /dev/null --request DELETE "$GCS_URL/storage/v1/b/$bucket/o/$(echo "$old" | sed 's|/|%2F|g')"
    done
  fi
else
  path=${file#/backup/}
  if [ -n "${MAX_BACKUPS:-}" ]; then
    for old in $(ls "$FOLDER" | sed -n '/^[0-9]\{14\}\.db$/p' | sort -r | tail -n "+$((MAX_BACKUPS + 1))"); do
      rm -f "$FOLDER/$old"
    done
  fi
fi
printf '{"path": "%s", "etcdVersion": "%s", "etcdRevision": %s}' "$path" "$version" "$revision" > /dev/termination-log
