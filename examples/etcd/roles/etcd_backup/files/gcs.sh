# Functions for Google Cloud Storage. GCS_URL is its address, GCP_CREDENTIALS the key of a service account, GCS_PATH
# bucket and object.
bucket=${GCS_PATH%%/*}
object=${GCS_PATH#*/}
umask 077

# The certificate authorities of Debian are separate files.
cat /usr/share/ca-certificates/mozilla/*.crt > /tmp/ca-bundle.crt
export CURL_CA_BUNDLE=/tmp/ca-bundle.crt

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

credential() { printf '%s' "$GCP_CREDENTIALS" | tr -d '\n' | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }

# Requests to the storage have the token of $GCP_CREDENTIALS, if there are any, never in an argument.
authorize() {
  : > /tmp/header
  [ -n "${GCP_CREDENTIALS:-}" ] || return 0
  printf '%b' "$(credential private_key)" > /tmp/key.pem
  now=$(date +%s)
  url=$(credential token_uri)
  header=$(printf '{"alg":"RS256","typ":"JWT"}' | base64url)
  claims=$(printf '{"iss":"%s","scope":"%s","aud":"%s","iat":%s,"exp":%s}' "$(credential client_email)" \
    https://www.googleapis.com/auth/devstorage.read_write "$url" "$now" $((now + 3600)) | base64url)
  signature=$(printf '%s.%s' "$header" "$claims" | openssl dgst -sha256 -sign /tmp/key.pem | base64url)
  printf 'grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=%s.%s.%s' "$header" "$claims" "$signature" \
    > /tmp/assertion
  answer=$(curl --silent --show-error --fail-with-body --data @/tmp/assertion "$url") || { echo "$answer" >&2; return 1; }
  token=$(printf '%s' "$answer" | tr -d '\n' | sed 's/.*"access_token": *"\([^"]*\)".*/\1/')
  printf 'Authorization: Bearer %s' "$token" > /tmp/header
}

storage() { curl --silent --show-error --fail-with-body --header @/tmp/header "$@"; }
