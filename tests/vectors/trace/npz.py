#!/usr/bin/env python3
"""Writes .npz files with numpy, as engines' authors do, and broken ones.

    npz.py DUMP IDS CORPUS

callback.npz   the activations in DUMP (made by ../llama/logits -d; its layout is at the head of logits.c)
plain.npz      numpy.savez: every element type, order and shape that is read; value(t, i) below
packed.npz     numpy.savez_compressed: blocks of fixed and of dynamic codes, long and far matches
CORPUS/npz-*   small ones that are read, and ones that are refused, each by its name
"""
import io
import struct
import sys
import zipfile

import numpy as np


def value(n_token, n):
    """(10 t + i) / 8 of token t, place i: exact in every floating type."""
    return (10 * np.arange(n_token)[:, None] + np.arange(n)) / 8


def whole(n_token, n):
    return (10 * np.arange(n_token)[:, None] + np.arange(n)).astype(np.int64)


def callback(dump, ids):
    data = open(dump, 'rb').read()
    arrays = {'tokens': np.array([int(i) for i in open(ids).read().split()], np.int32)}
    n_token = len(arrays['tokens'])
    at = 0
    while at < len(data):
        name = data[at:at + 24].rstrip(b'\0').decode()
        ne = struct.unpack_from('<4I', data, at + 24)
        n = int(np.prod(ne))
        array = np.frombuffer(data, '<f4', n, at + 40).reshape(ne[::-1])[0]
        at += 40 + 4 * n
        if name.startswith('kq_soft_max'):
            array = array.transpose(1, 0, 2)   # (head, token, key) -> (token, head, key)
        elif array.shape[0] == 1:
            array = array[0]
        assert array.shape[0] == n_token, (name, array.shape)
        arrays[name] = array
    np.savez_compressed('callback.npz', **arrays)


def plain():
    weights = np.zeros((3, 2, 3), np.float32)   # (token, head, key)
    for t in range(3):
        weights[t, 0, :t + 1] = 1 / (t + 1)
        weights[t, 1, t] = 1
    special = value(3, 8).astype('<f4')
    special[1, 2:5] = [np.nan, np.inf, -np.inf]
    arrays = {
        'tokens': np.array([1, 500, 49151]),
        'n_prompt': np.int64(2),
        'embd': value(3, 8).astype('<f4'),
        'attn_norm-0': value(3, 8).astype('<f2'),
        'Qcur-0': value(3, 8).astype('<f8').reshape(3, 2, 4),
        'Qcur_rope-0': value(3, 8).reshape(3, 2, 4).transpose(1, 0, 2)[None],          # (1, head, token, n)
        'Kcur-0': np.asfortranarray(value(3, 8).astype('<f4')),
        'Kcur_rope-0': np.asfortranarray(value(3, 8).astype('<f4').reshape(3, 2, 4)),
        'Vcur-0': value(3, 8)[None],                                                   # (1, token, n)
        'kq_soft_max-0': weights,
        'kq_soft_max-1': weights.transpose(1, 0, 2)[None],
        'ffn_norm-0': special,
        'ffn_gate-0': whole(3, 8).astype('i1'), 'ffn_up-0': whole(3, 8).astype('u1'),
        'ffn_out-0': whole(3, 8).astype('<i2'), 'l_out-0': whole(3, 8).astype('<u2'),
        'attn_norm-1': whole(3, 8).astype('<i4'), 'Qcur-1': whole(3, 8).astype('<u4'),
        'Kcur-1': whole(3, 8).astype('<i8'), 'Vcur-1': whole(3, 8).astype('<u8'),
        'ffn_inp-1': whole(3, 8) % 2 == 1,
        'model.layers.1.mlp.down_proj': value(3, 8)[None],
        'l_out-1': value(1, 8),
        'result_output': value(1, 20)[0],
        'rotary_cos': np.zeros(4),
    }
    np.savez('plain.npz', **arrays)


def packed():
    i = np.arange(3000, dtype=np.uint64)
    arrays = {
        'tokens': np.array([7, 8, 9], np.int32),
        'embd': value(3, 8).astype('<f4'),                                             # a fixed block
        'l_out-0': (i % 251).astype('<f4').reshape(3, 1000),                           # far matches
        'l_out-1': np.zeros((3, 40000), '<f4'),                                        # long ones
    }
    np.savez_compressed('packed.npz', **arrays)
    types = set()
    with zipfile.ZipFile('packed.npz') as z:
        for info in z.infolist():
            z.fp.seek(info.header_offset)
            local = z.fp.read(30)
            z.fp.seek(info.header_offset + 30 + sum(struct.unpack('<HH', local[26:])))
            types.add(z.fp.read(1)[0] >> 1 & 3)
    assert types == {1, 2}, types   # stored ones: npz-read-stored-blocks


# ---- the corpus --------------------------------------------------------------------------------------------------

def savez(compressed=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def npy(header, data=b''):
    header = header.encode()
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header + data


def zipped(method=zipfile.ZIP_STORED, level=None, **members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', method) as z:
        for name, data in members.items():
            z.writestr(zipfile.ZipInfo(name + '.npy'), data, method, level)
    return file.getvalue()


def patched(data, signature, offset, new):
    """In the last record of that signature."""
    at = data.rindex(signature) + offset
    return data[:at] + new + data[at + len(new):]


def corpus():
    e = value(3, 4).astype('<f4')
    ids = np.array([5, 6, 7])
    f4 = e.tobytes()
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
    small = zipped(embd=npy(head, f4))
    central, end = b'PK\1\2', b'PK\5\6'

    def shaped(shape, data=f4):
        return zipped(embd=npy(head.replace('(3, 4)', shape), data))

    # Zip64 throughout: as files of 4 GiB and more have it, values moved out of the directory and its end.
    at = small.index(central)
    offset, size = 0, len(small[small.index(b'PK\3\4') + 38:at])
    extra = struct.pack('<HHQQQ', 1, 24, size, size, offset)
    entry = bytearray(small[at:small.index(end)])
    entry[20:28] = b'\xff' * 8
    entry[30:32] = struct.pack('<H', len(extra))
    entry[42:46] = b'\xff' * 4
    entry += extra
    end64 = b'PK\6\6' + struct.pack('<QHHIIQQQQ', 44, 45, 45, 0, 0, 1, 1, len(entry), at)
    locator = b'PK\6\7' + struct.pack('<IQI', 0, at + len(entry), 1)
    zip64 = small[:at] + bytes(entry) + end64 + locator + end + struct.pack('<HHHHIIH', 0, 0, 0xffff, 0xffff,
                                                                             0xffffffff, 0xffffffff, 0)
    assert np.array_equal(np.load(io.BytesIO(zip64))['embd'], e)

    deflated = savez(True, embd=e)
    bomb = zipped(zipfile.ZIP_DEFLATED, embd=bytes(4000))
    # Three names for one member's bytes.
    first = small[at:small.index(end)]
    others = [first[:28] + struct.pack('<H', 11) + first[30:46] + b'l_out-%d.npy' % i for i in range(2)]
    entries = first + others[0] + others[1]
    crowd = small[:at] + entries + end + struct.pack('<HHHHIIH', 0, 0, 3, 3, len(entries), at, 0)

    return {
        # read
        'read': savez(tokens=ids, embd=e),
        'read-deflated': savez(True, tokens=ids, embd=e),
        'read-stored-blocks': zipped(zipfile.ZIP_DEFLATED, 0, embd=npy(head, f4)),
        'read-zip64': zip64,
        'read-with-a-comment': small[:-2] + b'\5\0hello',
        'read-empty': zipped(),
        'read-one-token': savez(**{'Qcur-0': value(1, 8).reshape(1, 2, 4), 'embd': value(1, 4)}),
        # the zip file
        'cut-off': small[:-30],
        'directory-beyond-the-end': patched(small, end, 16, b'\xff\xff\xff\x7f'),
        'more-entries-than-there-are': patched(small, end, 10, b'\2\0'),
        'end64-beyond-the-end': patched(zip64, b'PK\6\7', 8, b'\xff' * 8),
        'name-beyond-the-end': patched(small, central, 28, b'\xff\xff'),
        'member-beyond-the-end': patched(small, central, 42, b'\xf0\xff\xff\x7f'),
        'data-beyond-the-end': patched(small, central, 20, b'\0\0\0\x7f\0\0\0\x7f'),
        'encrypted': patched(small, central, 8, b'\1\0'),
        'bzip2': zipped(zipfile.ZIP_BZIP2, embd=npy(head, f4)),
        'stored-in-fewer-bytes': patched(small, central, 24, b'\0\1\0\0'),
        'deflated-beyond-1032': patched(bomb, central, 24, b'\0\0\0\x40'),
        'deflated-to-more': patched(bomb, central, 24, struct.pack('<I', 3999)),
        'deflated-to-less': patched(bomb, central, 24, struct.pack('<I', 4001)),
        'deflated-cut-off': patched(deflated, central, 20, b'\x20\0\0\0'),
        'deflated-badly': bomb[:38] + b'\7' + bomb[39:],   # where its data begins
        'three-members-in-one-place': crowd,
        'damaged': small.replace(f4, f4[:20] + b'!' + f4[21:]),
        # arrays
        'no-array': zipped(embd=b'hello, world'),
        'header-beyond-the-end': zipped(embd=npy(head, f4)[:60]),
        'header-of-nothing': zipped(embd=npy('{}', f4)),
        'version-9': zipped(embd=b'\x93NUMPY\x09' + npy(head, f4)[7:]),
        'big-endian': savez(embd=e.astype('>f4')),
        'complex': savez(embd=e.astype('c8')),
        'objects': savez(embd=np.array([[{}]], object)),
        'records': savez(embd=np.zeros((3, 4), [('a', '<f4'), ('b', '<i4')])),
        'text': savez(tokens=np.array(['The', 'sky'])),
        'five-axes': savez(embd=e.reshape(1, 1, 1, 3, 4)),
        'a-negative-axis': shaped('(-3, 4)'),
        'axes-that-wrap-64-bits': shaped('(4294967296, 4294967296)'),
        'axes-of-more-than-there-is': shaped('(3, 5)'),
        'axes-without-an-end': shaped('(3, 4'),
        'empty': savez(embd=np.zeros((0, 4), 'f4')),
        # what they mean
        'no-count': savez(**{'Qcur-0': value(3, 8).reshape(3, 2, 4)}),
        'other-count': savez(tokens=ids, embd=value(7, 4)),
        'no-token-axis': savez(tokens=ids, **{'Qcur-0': value(4, 8).reshape(4, 2, 4)}),
        'heads-or-tokens': savez(tokens=ids, **{'Qcur-0': value(3, 12).reshape(3, 3, 4)}),
        'heads-or-tokens-batch': savez(tokens=ids, **{'Qcur-0': value(3, 12).reshape(1, 3, 3, 4)}),
        'heads-like-others': savez(tokens=ids, **{'Qcur-0': value(3, 12).reshape(3, 3, 4),
                                                  'Kcur-0': value(1, 12).reshape(1, 3, 4)}),
        # a causal mask in (head, token, key)
        'weights-with-a-mask': savez(tokens=ids, **{'kq_soft_max-0': np.tile(np.tril(np.ones((3, 3)))
                                                                             / np.arange(1, 4)[:, None], (3, 1, 1))}),
        'weights-or-tokens': savez(tokens=ids, **{'kq_soft_max-0': np.ones((3, 3, 3))}),
        'flat-weights': savez(tokens=ids, **{'kq_soft_max-0': np.ones((3, 3))}),
        'too-many-axes': savez(tokens=ids, embd=np.ones((2, 3, 4))),
        'half-a-token': savez(tokens=np.array([1, 1.5]), embd=value(2, 4)),
        'a-negative-token': savez(tokens=np.array([1, -1]), embd=value(2, 4)),
        'two-texts': savez(tokens=np.array([[1, 2], [3, 4]]), embd=value(2, 4)),
        'prompt-beyond-the-end': savez(tokens=ids, n_prompt=4, embd=e),
        'two-names-of-one-tap': savez(tokens=ids, **{'l_out-0': e, 'model.layers.0': e}),
        'tokens-twice': savez(tokens=ids, input_ids=ids),
    }


callback(sys.argv[1], sys.argv[2])
plain()
packed()
for name, data in corpus().items():
    open(f'{sys.argv[3]}/npz-{name}', 'wb').write(data)
