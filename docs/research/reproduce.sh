#!/usr/bin/env bash
# Fetches the data into data/ and runs the commands of docs/research/reproduce.md, section 3.
#   reproduce.sh          all of them: hours; data that are there are checked, not fetched again
#   reproduce.sh --smoke  crabpath eval on the sample that ships with the package, and one experiment: two minutes, no figures
set -euo pipefail
if [ "${1:-}" = --smoke ]; then
    out=$(mktemp -d)
    crabpath eval sample --cache "$out/cache" --json "$out/retrieval.json"
    crabpath eval sample --cache "$out/cache" --stream prequential --methods cold --learners learned,knn --k 2 --epochs 2 --json "$out/learning.json"
    crabpath experiment procedural --seeds 2 --cache "$out/cache" --report "$out/experiment"
    echo "figures of the smoke run: $out"
    exit
fi
crabpath fetch hotpotqa 2wiki multihoprag hipporag tau_bench
crabpath eval hotpotqa --data data/hotpotqa/dev_first500 --cache cache
crabpath eval 2wiki --data data/2wikimultihopqa/dev_sample.json.gz --cache cache
crabpath eval multihoprag --data data/multihoprag --cache cache
crabpath eval hipporag --data data/HippoRAG/reproduce/dataset/2wikimultihopqa
python -m benchmarks episodes --tau-bench data/tau_bench/airline_trajectories.jsonl.gz --cache cache
crabpath experiment all --seeds 10
