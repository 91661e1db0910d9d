DROP INDEX file_unfinished;
DROP TABLE upload_part, upload;
