import {WASI} from 'node:wasi'; import fs from 'node:fs';
const w=new WASI({version:'preview1',args:[]}); const m=await WebAssembly.compile(fs.readFileSync('/tmp/pk.wasm')); const i=await WebAssembly.instantiate(m,w.getImportObject()); w.start(i);
