# Runs a broker for as long as its owner lives: sh watch.sh FOLDER COMMAND...
#
# Each line on standard input is the name of a signal to send to the broker. The input ends when the
# owner drops it or dies, however it dies; then the broker is killed and its folder removed. Exits
# when the broker has ended.
folder=$1
shift

exec 3<&0
"$@" </dev/null 3<&- &
broker=$!
echo "$broker" >"$folder/pid"

{
    while read -r signal <&3; do
        kill -s "$signal" "$broker"
    done
    : >"$folder/orphaned"
    kill -s KILL "$broker"
} &
reader=$!

wait "$broker"
kill "$reader" 2>/dev/null
if [ -e "$folder/orphaned" ]; then
    rm -rf "$folder"
fi
