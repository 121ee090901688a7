// SPDX-License-Identifier: MIT
// What node does under test: objects, buffers, streams, worker threads and processes.
'use strict';
const { createHash } = require('crypto');
const { execFileSync } = require('child_process');
const { isMainThread, parentPort, Worker, workerData } = require('worker_threads');
const zlib = require('zlib');

const checksum = (data) => createHash('sha256').update(data).digest('hex').slice(0, 16);
const report = (name, data) => console.log(name, checksum(data));

function objects() {
    const table = new Map();
    for (let i = 0; i < 200000; i++) {
        table.set('key ' + i % 50000, { n: i, list: Array(i % 10).fill(i) });
    }
    return JSON.stringify([...table].sort((a, b) => a[1].n - b[1].n));
}

function buffers() {
    const parts = [];
    for (let i = 0; i < 3000; i++) {
        parts.push(Buffer.alloc(i * 3, i & 255));
    }
    const whole = Buffer.concat(parts);
    const packed = zlib.gzipSync(whole, { level: 4 });
    if (!zlib.gunzipSync(packed).equals(whole)) {
        throw new Error('what was packed did not come back');
    }
    return whole;
}

function sums(count) {
    let text = '';
    for (let i = 0; i < count; i++) {
        text += (i * 7919).toString(36);
    }
    return checksum(text);
}

function inWorker(count) {
    return new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: count });
        worker.once('message', resolve);
        worker.once('error', reject);
    });
}

async function main() {
    report('objects', objects());
    report('buffers', buffers());
    const counts = [100000, 200000, 300000];
    report('workers', (await Promise.all(counts.map(inWorker))).join());
    report('process', execFileSync(process.execPath, ['-e', 'console.log("x".repeat(1e6))']));
}

if (isMainThread) {
    main();
} else {
    parentPort.postMessage(sums(workerData));
}
