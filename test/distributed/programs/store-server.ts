/** Serves a store until its stdin ends; prints the port. */
import { TCPStore } from '../../../lib/distributed.js';

const store = await new TCPStore('127.0.0.1', 0, {
  isServer: true,
  secret: process.argv[2] ?? null,
}).ready();
process.stdout.write(String(store.port));
process.stdin.resume();
process.stdin.once('end', () => process.exit(0));
