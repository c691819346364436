"""Packs a folder as a zip file whose bytes depend on the files alone: python3 pack.py FOLDER FILE.zip NAME

NAME is the folder in the zip file.
"""
import pathlib
import sys
import zipfile

folder, target, name = sys.argv[1:]
with zipfile.ZipFile(target, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in sorted(path for path in pathlib.Path(folder).rglob('*') if path.is_file()):
        entry = zipfile.ZipInfo(f'{name}/{path.relative_to(folder).as_posix()}', (1980, 1, 1, 0, 0, 0))
        entry.external_attr = 0o100644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, path.read_bytes())
